"""What people write beyond CommonMark: task lists, footnotes, and a placeholder for images, which are never loaded."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_DONE = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_MARK = re.compile(r"\[\^([^\]\s]+)\](:?)")
IMAGE = "▨"
"""Stands before the alternative text of an image."""


def extend(parser: MarkdownIt) -> MarkdownIt:
    """Adds the rules to ``parser``."""
    parser.core.ruler.after("inline", "task_list", _task_list)
    parser.block.ruler.before("reference", "footnote", _footnote, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("link", "footnote_mark", _footnote_mark)
    parser.add_render_rule("image", _image)
    return parser


def _task_list(state: StateCore) -> None:
    """A box for the brackets that begin an item."""
    tokens = state.tokens
    for index, token in enumerate(tokens):
        if token.type != "inline" or index < 2 or tokens[index - 2].type != "list_item_open" or not token.children:
            continue
        first = token.children[0]
        if first.type == "text" and (box := _DONE.get(first.content[:4])):
            first.content = box + first.content[4:]


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """``[^1]: words`` is a paragraph of its own, which a reference to an address would swallow."""
    begin = state.bMarks[start] + state.tShift[start]
    mark = _MARK.match(state.src, begin, state.eMarks[start])
    if mark is None or not mark[2]:
        return False
    if silent:
        return True
    token = state.push("paragraph_open", "p", 1)
    token.map = [start, start + 1]
    words = state.push("inline", "", 0)
    words.content = state.src[begin : state.eMarks[start]].strip()
    words.map, words.children = [start, start + 1], []
    state.push("paragraph_close", "p", -1)
    state.line = start + 1
    return True


def _footnote_mark(state: StateInline, silent: bool) -> bool:
    mark = _MARK.match(state.src, state.pos, state.posMax)
    if mark is None or (mark[2] and state.pos):
        return False
    if not silent:
        state.push("footnote_open", "sup", 1)
        state.push("text", "", 0).content = mark[1]
        state.push("footnote_close", "sup", -1)
    state.pos = mark.end()
    return True


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    words = renderer.renderInlineAsText(tokens[index].children or [], options, env)
    return f"<i>{IMAGE} {escape(words or 'image')}</i>"

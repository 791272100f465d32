"""Markdown beyond CommonMark: task lists, footnotes, maths, which is shown as written, and a placeholder for
images, which are never loaded. Nothing is hidden: definitions of links are shown too."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from engine.base.lines import split_lines

_DONE = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_MARK = re.compile(r"\[\^([^\]\s]+)\](:?)")
IMAGE = "▨"
"""Stands before the alternative text of an image."""


_MATHS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
"""Delimiters that begin and end maths."""
_ENVIRONMENT = re.compile(r"\\begin\{(\w+\*?)\}")
_IN_DOLLARS = re.compile(r"\$(?![\s$])(?:\\.|[^$\\\n]){1,500}(?<!\s)\$(?!\d)")
"""Maths in dollars by Pandoc's rule, so that prices are none."""
_AS_WRITTEN = re.compile(r"\\[()\[\],;]")
"""Escapes that are more often maths than Markdown."""
_MOST = 4_000
"""Characters of maths in which its end is looked for."""


def extend(parser: MarkdownIt) -> MarkdownIt:
    """Adds the rules to ``parser``."""
    parser.core.ruler.after("inline", "task_list", _task_list)
    parser.block.ruler.before("reference", "footnote", _footnote, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.before("table", "maths", _maths_block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("link", "footnote_mark", _footnote_mark)
    parser.inline.ruler.before("escape", "maths", _maths)
    parser.core.ruler.after("block", "whole_rows", _whole_rows)
    parser.core.ruler.after("inline", "definition", _definition)
    parser.add_render_rule("image", _image)
    return parser


def _task_list(state: StateCore) -> None:
    """A box for the brackets that begin an item, which takes the place of its bullet where all of a list have one."""
    tokens = state.tokens
    lists: list[tuple[Token, list[bool]]] = []
    """Lists that are open here, with whether each item has a box."""
    for index, token in enumerate(tokens):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            lists.append((token, []))
        elif token.type == "list_item_open":
            lists[-1][1].append(_boxed(tokens[index + 2 : index + 3]))
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            opened, boxes = lists.pop()
            if token.type == "bullet_list_close" and all(boxes):
                opened.attrSet("style", "list-style-type: none")


def _boxed(words: Sequence[Token]) -> bool:
    """Turn the brackets at the beginning into a box; whether there were any."""
    first = words[0].children[0] if words and words[0].type == "inline" and words[0].children else None
    if first is None or first.type != "text" or not (box := _DONE.get(first.content[:4])):
        return False
    first.content = box + first.content[4:]
    return True


def _whole_rows(state: StateCore) -> None:
    """Keep the cells of a table's row beyond the columns of its head in its last cell."""
    tokens, source, row = state.tokens, None, 0
    for index, token in enumerate(tokens):
        if token.type == "tr_open":
            row = index
        elif token.type == "tr_close" and (place := tokens[row].map) is not None:
            source = source or split_lines(state.src)
            cells = escapedSplit(source[place[0]].lstrip(" >").rstrip())
            cells = cells[not cells[0] : len(cells) - (not cells[-1])]
            beyond = cells[sum(each.type == "inline" for each in tokens[row:index]) :]
            if beyond:
                last = next(each for each in reversed(tokens[row:index]) if each.type == "inline")
                last.content = " | ".join((last.content, *(cell.strip() for cell in beyond)))


def _definition(state: StateCore) -> None:
    """``[1]: address`` is shown as written, besides being what links refer to."""
    if not any(token.type == "definition" for token in state.tokens):
        return
    source, tokens = split_lines(state.src, keepends=True), []
    for token in state.tokens:
        if token.type != "definition" or token.map is None:
            tokens.append(token)
            continue
        words = "".join(line.lstrip(" >" if token.level else " ") for line in source[slice(*token.map)]).strip()
        inline = Token("inline", "", 0, map=token.map, level=token.level + 1, content=words)
        inline.children = [Token("text", "", 0, content=words)]
        tokens += [Token("paragraph_open", "p", 1, map=token.map, block=True, level=token.level), inline]
        tokens.append(Token("paragraph_close", "p", -1, block=True, level=token.level))
    state.tokens = tokens


def _end_of_maths(text: str, start: int, stop: int) -> int:
    """End of the maths that begins at ``start``, at most ``stop``; -1 if none begins, or it has no end."""
    closing = _MATHS.get(text[start : start + 2], "")
    if not closing and (environment := _ENVIRONMENT.match(text, start, stop)):
        closing = f"\\end{{{environment[1]}}}"
    if closing:
        found = text.find(closing, start + 2, min(stop, start + _MOST))
        return found + len(closing) if found > start + 2 else -1
    dollars = _IN_DOLLARS.match(text, start, stop)
    return dollars.end() if dollars else -1


def _maths(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "\\$":
        return False
    end = _end_of_maths(state.src, state.pos, state.posMax)
    if end < 0 and _AS_WRITTEN.match(state.src, state.pos, state.posMax):
        end = state.pos + 2
    if end < 0:
        return False
    if not silent:
        for number, line in enumerate(state.src[state.pos : end].split("\n")):
            if number:
                state.push("hardbreak", "br", 0)
            state.push("text", "", 0).content = line
    state.pos = end
    return True


def _maths_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Maths of several lines is one paragraph, whatever its lines begin with."""
    if state.is_code_block(start):
        return False
    begin = state.bMarks[start] + state.tShift[start]
    if state.src[begin : begin + 2] not in ("\\[", "$$") and not _ENVIRONMENT.match(state.src, begin):
        return False
    if _end_of_maths(state.src, begin, state.eMarks[start]) >= 0:
        return False
    last = start + 1
    while last < end and not state.isEmpty(last):
        last += 1
        if _end_of_maths(state.src, begin, state.eMarks[last - 1]) >= 0:
            break
    if silent:
        return True
    state.push("paragraph_open", "p", 1).map = [start, last]
    words = state.push("inline", "", 0)
    words.content = state.getLines(start, last, state.blkIndent, False).strip()
    words.map, words.children = [start, last], []
    state.push("paragraph_close", "p", -1)
    state.line = last
    return True


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

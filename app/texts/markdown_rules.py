"""Markdown beyond CommonMark: task lists, footnotes, maths, and a placeholder for images, which are never loaded.
Nothing is hidden: definitions of links are shown too."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping, Sequence
from copy import copy
from html import escape
from itertools import chain
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from app.language import tr
from app.texts.formulas import ENVIRONMENTS, bare
from engine.base.lines import split_lines

_DONE = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_MARK = re.compile(r"\[\^([^\]\s]+)\](:?)")
IMAGE = "▨"
"""Stands before the alternative text of an image."""


_MATHS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
"""Delimiters that begin and end maths."""
_ENVIRONMENT = re.compile(r"\\begin\{(\w+\*?)\}")
_IN_DOLLARS = re.compile(r"(?<![\w$])\$(?![\s$])(?:\\.|[^$\\\n]){1,500}(?<!\s)\$(?![\w$])")
"""Maths in dollars by Pandoc's rule, so that prices are none; nor are variables of a shell."""
_PRICE = re.compile(r"\$\d[\d.,]*\s+(?!\\)[^\W\d_]{3,}[^\\^_={}]*\$$")
"""An amount with words, as in "$5 million or 6$", which the rule would take for maths."""
_AS_WRITTEN = re.compile(r"\\[()\[\],;]")
"""Escapes that are more often maths than Markdown."""
_MOST = 4_000
"""Characters of maths in which its end is looked for."""
_BEGINS_BLOCK = re.compile(r"[-+*>#|]|\d+[.)]|```|~~~")
"""What a list, quote, heading, table or fence begins with."""
_BREAKS = ("softbreak", "hardbreak")


def extend(parser: MarkdownIt) -> MarkdownIt:
    """Adds the rules to ``parser``."""
    parser.core.ruler.after("inline", "task_list", _task_list)
    parser.block.ruler.before("reference", "footnote", _footnote, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.before("table", "maths", _maths_block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("link", "footnote_mark", _footnote_mark)
    parser.inline.ruler.before("escape", "maths", _maths)
    parser.core.ruler.after("block", "whole_rows", _whole_rows)
    parser.core.ruler.after("inline", "definition", _definition)
    parser.core.ruler.after("inline", "displayed", _displayed)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("formula", _formula)
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


def end_of_maths(text: str, start: int, stop: int, growing: bool = False) -> int:
    """End of the maths that begins at ``start``, at most ``stop``; -1 if none begins, or it has no end.

    While the text is ``growing`` a dollar at its end may still turn out to be that of a price.
    """
    closing = _MATHS.get(text[start : start + 2], "")
    if not closing and (environment := _ENVIRONMENT.match(text, start, stop)):
        closing = f"\\end{{{environment[1]}}}"
    if closing:
        found = text.find(closing, start + 2, min(stop, start + _MOST))
        return found + len(closing) if found > start + 2 else -1
    dollars = _IN_DOLLARS.match(text, start, stop)
    if not dollars or _PRICE.match(dollars[0]) or (growing and dollars.end() == stop):
        return -1
    return dollars.end()


def _maths(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "\\$":
        return False
    end = end_of_maths(state.src, state.pos, state.posMax, bool(state.env.get("growing")))
    written = end < 0 and _AS_WRITTEN.match(state.src, state.pos, state.posMax)
    if written:
        end = state.pos + 2
    if end < 0:
        return False
    if not silent:
        source = state.src[state.pos : end]
        environment = _ENVIRONMENT.match(source)
        if written or (environment and environment[1] not in ENVIRONMENTS):
            for number, line in enumerate(source.split("\n")):
                if number:
                    state.push("hardbreak", "br", 0)
                state.push("text", "", 0).content = line
        else:
            state.push("formula", "", 0).content = source
    state.pos = end
    return True


def _displayed(state: StateCore) -> None:
    """Maths that is displayed stands in a paragraph of its own."""
    inlines = [token.children or [] for token in state.tokens if token.type == "inline"]
    if not state.env.get("formula") or not any(map(_is_display, chain(*inlines))):
        return
    tokens: list[Token] = []
    for index, token in enumerate(state.tokens):
        opening = state.tokens[index - 1] if index else None
        if token.type != "inline" or opening is None or opening.type != "paragraph_open":
            tokens.append(token)
            continue
        del tokens[-1]
        parts = _parts(token.children or [])
        for number, children in enumerate(parts):
            opened, closed = copy(opening), copy(state.tokens[index + 1])
            opened.hidden = closed.hidden = opening.hidden and not number and not _is_display(children[0])
            if _is_display(children[0]):
                opened.attrs = {"align": "center"}
            inline = copy(token)
            inline.children = children
            tokens += [opened, inline, closed][: 3 if number + 1 < len(parts) else 2]
        closing = copy(state.tokens[index + 1])
        closing.hidden = tokens[-2].hidden
        state.tokens[index + 1] = closing
    state.tokens = tokens


def _is_display(token: Token) -> bool:
    return token.type == "formula" and bare(token.content)[1]


def _parts(children: Sequence[Token]) -> list[list[Token]]:
    """The children before, of and behind each displayed formula, without the line breaks next to it."""
    parts: list[list[Token]] = [[]]
    for child in children:
        if _is_display(child):
            parts += [[child], []]
        else:
            parts[-1].append(child)
    if len(parts) == 1:
        return parts
    for part in parts:
        while part and _is_space(part[0]):
            del part[0]
        while part and _is_space(part[-1]):
            del part[-1]
    return [part for part in parts if part]


def _is_space(token: Token) -> bool:
    return token.type in _BREAKS or (token.type == "text" and not token.content.strip())


def _opens_late(text: str, begin: int, stop: int) -> int:
    """Where maths that is displayed opens in a line of words, and does not end in it; -1 for nowhere."""
    if _BEGINS_BLOCK.match(text, begin, stop):
        return -1
    opens = text.rfind("\\[", begin, stop)
    return opens if opens >= 0 and text.find("\\]", opens, stop) < 0 else -1


def _maths_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Maths of several lines is one paragraph, whatever its lines begin with."""
    if state.is_code_block(start):
        return False
    begin, stop = state.bMarks[start] + state.tShift[start], state.eMarks[start]
    leads = state.src[begin : begin + 2] in ("\\[", "$$") or _ENVIRONMENT.match(state.src, begin)
    opens = begin if leads else _opens_late(state.src, begin, stop)
    if opens < 0 or end_of_maths(state.src, opens, stop) >= 0:
        return False
    last, closed = start + 1, False
    while last < end and not closed and not state.isEmpty(last):
        last += 1
        closed = end_of_maths(state.src, opens, state.eMarks[last - 1]) >= 0
    if not leads and not closed:
        return False
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


def words(children: Sequence[Token]) -> str:
    """What inline Markdown says, without its marks; maths as it was written."""
    found = (words(child.children) if child.children else child.content for child in children)
    return "".join(" " if child.type in _BREAKS else said for child, said in zip(children, found, strict=True))


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    return f"<i>{IMAGE} {escape(words(tokens[index].children or []) or tr('image'))}</i>"


def _formula(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """What ``env["formula"]`` makes of the source, given whether it stands alone; as written where there is none."""
    source = tokens[index].content
    show: Callable[[str, bool], str] | None = env.get("formula")
    return show(source, len(tokens) == 1) if show is not None else as_lines(source)


def as_lines(source: str) -> str:
    """The source as HTML that keeps its lines."""
    return escape(source).replace("\n", "<br />\n")

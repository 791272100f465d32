"""Markdown as a list of blocks, parsed again only from the last one on while a text grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.texts.markdown_rules import extend, words
from engine.base.lines import split_lines

_parser = extend(
    MarkdownIt("commonmark", {"html": False, "inline_definitions": True}).enable(["table", "strikethrough"])
)
OBJECT = "\ufffc"
"""Stands for a formula in the text of a document."""
_RESYNC = 160
"""Characters of markup that :func:`align` may skip to find the next shown character."""


class MarkdownBlock(NamedTuple):
    """One top-level block. ``start`` and ``end`` are character indices into the whole text, each of whose characters
    is in one block.

    A code block's ``body`` begins at index ``body_start``; for an indented one, whose body is not contiguous in the
    text, that is -1. The body of text and of a table is its Markdown source.
    """

    kind: Literal["text", "code", "table"]
    start: int
    end: int
    body: str
    body_start: int
    info: str = ""
    """Text behind the fence of a code block."""

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info else ""


def parse(text: str, offset: int = 0) -> list[MarkdownBlock]:
    """The blocks of ``text``, which begins at index ``offset`` of the whole.

    A block goes on to the beginning of the next one; what is before the first is the first's.
    """
    starts = [0, *accumulate(map(len, split_lines(text, keepends=True)))]
    tokens = [token for token in _parser.parse(text) if token.level == 0 and token.nesting >= 0 and token.map]
    begins = [starts[token.map[0]] for token in tokens if token.map]
    bounds = [*(0, *begins[1:])[: len(begins)], len(text)]
    return [
        _block(token, text[begin:end], offset + begin)._replace(start=offset + start, end=offset + end)
        for token, begin, (start, end) in zip(tokens, begins, pairwise(bounds), strict=True)
    ]


def _block(token: Token, source: str, at: int) -> MarkdownBlock:
    """The block of ``token``, whose ``source`` begins at index ``at`` of the whole."""
    if token.type not in ("fence", "code_block"):
        return MarkdownBlock("table" if token.type == "table_open" else "text", at, at, source.rstrip(), at)
    fenced = token.type == "fence" and not source[:1].isspace()
    body_start = at + len(split_lines(source, keepends=True)[0]) if fenced else -1
    return MarkdownBlock("code", at, at, token.content.removesuffix("\n"), body_start, token.info.strip())


def merged(blocks: Sequence[MarkdownBlock], text: str) -> list[MarkdownBlock]:
    """Neighbouring text blocks as one, which takes fewer widgets once nothing changes any more."""
    result: list[MarkdownBlock] = []
    for block in blocks:
        last = result[-1] if result else None
        if last is not None and last.kind == block.kind == "text":
            body = text[last.body_start : block.end].rstrip()
            result[-1] = last._replace(end=block.end, body=body)
        else:
            result.append(block)
    return result


class GrowingText:
    """The blocks of a text that only grows at its end."""

    def __init__(self) -> None:
        self.blocks: list[MarkdownBlock] = []

    def update(self, text: str) -> int:
        """Take the longer text; returns the index of the first block that may have changed."""
        first = max(0, len(self.blocks) - 1)
        offset = self.blocks[first].start if self.blocks else 0
        self.blocks[first:] = parse(text[offset:], offset)
        return first


def to_html(source: str, formula: Callable[[str, bool], str] | None = None, growing: bool = False) -> str:
    """Raw HTML in the source comes out as text, images as their words.

    ``formula`` makes HTML of the source of a formula and whether it stands alone; without it maths is as written.
    """
    return _parser.render(source, {"formula": formula, "growing": growing})


def cells(source: str) -> list[list[str]]:
    """What the cells of a table say, row by row."""
    rows: list[list[str]] = []
    for token in _parser.parse(source):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append(words(token.children or []))
    return rows


class Alignment(NamedTuple):
    """``where[i]`` is the index in ``source`` of the character i of ``shown``, -1 where there is none."""

    shown: str
    source: str
    where: list[int]

    def prefix(self, shown: str, source: str) -> list[int]:
        """Return the part that still holds for a longer text: all but the last few characters, whose rendering may
        have changed. Empty unless the longer text continues the earlier one."""
        keep = max(0, len(self.shown) - _RESYNC)
        same = source.startswith(self.source) and shown.startswith(self.shown[:keep])
        return self.where[:keep] if same else []


def align(shown: str, source: str, known: Sequence[int] = (), formulas: Sequence[str] = ()) -> list[int]:
    """Index in the Markdown source of each character of the rendered text, -1 if there is none.

    ``known`` is the result for the beginning of ``shown``, ``formulas`` are the sources of the objects in it.
    """
    indices = list(known)
    last = next((place for place in range(len(indices) - 1, -1, -1) if indices[place] >= 0), None)
    before = shown.count(OBJECT, 0, len(indices))
    drawn = iter(formulas[before:])
    at = 0
    if last is not None:
        at = indices[last] + (len(formulas[before - 1]) if shown[last] == OBJECT and before <= len(formulas) else 1)
    for char in shown[len(indices) :]:
        if char == "\n":  # between paragraphs, items and cells; marking one would paint over list numbers
            indices.append(-1)
            continue
        if char == OBJECT and (formula := next(drawn, "")):
            found = source.find(formula, at, at + _RESYNC + len(formula))
            indices.append(found)
            at = found + len(formula) if found >= 0 else at
            continue
        if char.isspace() or char == OBJECT:
            if at < len(source) and source[at].isspace():
                indices.append(at)
                at += 1
            else:
                indices.append(-1)
            continue
        found = source.find(char, at, at + _RESYNC)
        indices.append(found)
        if found >= 0:
            at = found + 1
    return indices

"""The background that shows where words came from: which characters, and how it is painted below the text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF
from PySide6.QtGui import QPainter, QTextBlock, QTextCursor
from PySide6.QtWidgets import QTextEdit

from app.history.records import Span
from app.theme.theme import Theme

_CODES = {"": 0, "accepted": 1, "corrected": 2}
_TOKENS = ("", "good", "warn")
_SHARE = 0.24


class TintRun(NamedTuple):
    """Characters ``start`` to ``end`` of the shown text, and the theme's token for their background."""

    start: int
    end: int
    token: str


def tinted_runs(where: Sequence[int], base: int, spans: Sequence[Span]) -> list[TintRun]:
    """Neighbouring shown characters of one tint.

    ``where[i]`` + ``base`` is the index in the message of the shown character i, -1 where it has none; ``spans``
    cover the message from its beginning.
    """
    if not where or not spans:
        return []
    places = np.asarray(where, dtype=np.int64)
    codes = np.repeat([_CODES[span.tint] for span in spans], [span.chars for span in spans])
    inside = (places >= 0) & (places + base < len(codes))
    tints = np.where(inside, codes[np.where(inside, places + base, 0)], 0)
    edges = [0, *(np.flatnonzero(np.diff(tints)) + 1).tolist(), len(tints)]
    runs = (TintRun(start, end, _TOKENS[int(tints[start])]) for start, end in pairwise(edges))
    return [run for run in runs if run.token]


def in_utf16(runs: Sequence[TintRun], text: str) -> list[TintRun]:
    """The runs counted as Qt counts, for a ``text`` with characters beyond the basic plane."""
    widths = np.fromiter((1 + (ord(char) > 0xFFFF) for char in text), dtype=np.int64, count=len(text))
    places = np.concatenate(([0], np.cumsum(widths))).tolist()
    return [TintRun(places[run.start], places[run.end], run.token) for run in runs]


def paint_runs(view: QTextEdit, rect: QRect, runs: Sequence[TintRun], theme: Theme) -> None:
    """Fill behind the runs on the lines that ``rect`` (viewport pixels) touches; everything else costs nothing."""
    painter = QPainter(view.viewport())
    colours = {token: theme.tint(token, _SHARE) for token in _TOKENS if token}
    starts = [run.start for run in runs]
    shift = QPointF(view.horizontalScrollBar().value(), view.verticalScrollBar().value())
    layout = view.document().documentLayout()
    block = view.document().findBlock(view.cursorForPosition(rect.topLeft()).position())
    while block.isValid():
        bounds = layout.blockBoundingRect(block).translated(-shift)  # its corner is where the block's lines count from
        if bounds.top() > rect.bottom():
            break
        for start, end, box in _lines(block, bounds.topLeft(), rect):
            for run in runs[max(0, bisect_right(starts, start) - 1) :]:
                if run.start >= end:
                    break
                if run.end > start:
                    _fill(painter, block, box, max(run.start, start), min(run.end, end), colours[run.token])
        block = block.next()
    painter.end()


class _Box(NamedTuple):
    """One line: its number in the block, and where it stands in the viewport."""

    number: int
    origin: QPointF
    top: float
    height: float


def _lines(block: QTextBlock, origin: QPointF, rect: QRect) -> list[tuple[int, int, _Box]]:
    """(first position, last position + 1, box) of the block's lines that ``rect`` touches."""
    layout, found = block.layout(), []
    for number in range(layout.lineCount()):
        line = layout.lineAt(number)
        top = origin.y() + line.y()
        if top + line.height() >= rect.top() and top <= rect.bottom():
            start = block.position() + line.textStart()
            found.append((start, start + line.textLength(), _Box(number, origin, top, line.height())))
    return found


def _fill(painter: QPainter, block: QTextBlock, box: _Box, start: int, end: int, colour: str) -> None:
    line = block.layout().lineAt(box.number)
    left, _ = line.cursorToX(start - block.position())
    right, _ = line.cursorToX(end - block.position())
    area = QRectF(box.origin.x() + min(left, right), box.top, abs(right - left), box.height)
    painter.fillRect(area, colour)


def shown_text(view: QTextEdit, run: TintRun) -> str:
    """The text behind a run."""
    cursor = QTextCursor(view.document())
    cursor.setPosition(run.start)
    cursor.setPosition(run.end, QTextCursor.MoveMode.KeepAnchor)
    return cursor.selectedText()

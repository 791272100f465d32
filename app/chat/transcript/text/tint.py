"""The background that shows where words came from: which characters, and how it is painted below the text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, cast

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF
from PySide6.QtGui import QPainter, QTextBlock, QTextLine
from PySide6.QtWidgets import QTextEdit

from app.history.records import TextSpan, Tint
from app.language import tr
from app.proposers import proposer
from app.theme.theme import Theme

TOKENS: dict[Tint, str] = {"accepted": "good", "corrected": "warn"}
SHARE, EDGED_SHARE = 0.24, 0.36
"""Share of the token's colour in the background of a tinted word, and in high contrast."""


def background(theme: Theme, token: str) -> str:
    """The background of a tinted word, as ``#rrggbb``."""
    return theme.tint(token, EDGED_SHARE if theme.edged else SHARE)


class TintRun(NamedTuple):
    """Characters ``start`` to ``end`` of the shown text, the theme's token for their background, and the proposer."""

    start: int
    end: int
    token: str
    by: str = ""


def tinted_runs(where: Sequence[int], base: int, spans: Sequence[TextSpan]) -> list[TintRun]:
    """Neighbouring shown characters of one tint.

    ``where[i]`` + ``base`` is the index in the message of the shown character i, -1 where it has none; ``spans``
    cover the message from its beginning.
    """
    if not where or not spans:
        return []
    import numpy as np  # 0.1 s, which the window's start has not

    places = np.asarray(where, dtype=np.int64)
    kinds = list(dict.fromkeys([("", ""), *((TOKENS.get(span.tint, ""), span.by) for span in spans)]))
    codes = np.repeat(
        [kinds.index((TOKENS.get(span.tint, ""), span.by)) for span in spans], [span.chars for span in spans]
    )
    inside = (places >= 0) & (places + base < len(codes))
    tints = np.where(inside, codes[np.where(inside, places + base, 0)], 0)
    edges = [0, *(np.flatnonzero(np.diff(tints)) + 1).tolist(), len(tints)]
    runs = (TintRun(start, end, *kinds[int(tints[start])]) for start, end in pairwise(edges))
    return [run for run in runs if run.token]


def in_utf16(runs: Sequence[TintRun], text: str) -> list[TintRun]:
    """The runs counted as Qt counts, for a ``text`` with characters beyond the basic plane."""
    import numpy as np

    widths = np.fromiter((1 + (ord(char) > 0xFFFF) for char in text), dtype=np.int64, count=len(text))
    places = np.concatenate(([0], np.cumsum(widths))).tolist()
    return [run._replace(start=places[run.start], end=places[run.end]) for run in runs]


def paint_runs(view: QTextEdit, rect: QRect, runs: Sequence[TintRun], theme: Theme) -> None:
    """Fill behind the runs on the lines that ``rect`` (viewport pixels) touches; everything else costs nothing."""
    painter = QPainter(view.viewport())
    colours = {token: background(theme, token) for token in TOKENS.values()}
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


def _x(line: QTextLine, place: int) -> float:
    x, _ = cast(tuple[float, int], line.cursorToX(place))  # PySide declares what it returns as an object
    return x


def _fill(painter: QPainter, block: QTextBlock, box: _Box, start: int, end: int, colour: str) -> None:
    line = block.layout().lineAt(box.number)
    left, right = (_x(line, place - block.position()) for place in (start, end))
    area = QRectF(box.origin.x() + min(left, right), box.top, abs(right - left), box.height)
    painter.fillRect(area, colour)


def run_at(view: QTextEdit, point: QPoint, runs: Sequence[TintRun]) -> TintRun | None:
    """The run below ``point`` (viewport pixels), if any."""
    block = view.document().findBlock(view.cursorForPosition(point).position())
    origin = view.document().documentLayout().blockBoundingRect(block).topLeft()
    at = QPointF(point) - origin + QPointF(view.horizontalScrollBar().value(), view.verticalScrollBar().value())
    for number in range(block.layout().lineCount()):
        line = block.layout().lineAt(number)
        if line.naturalTextRect().contains(at):
            place = block.position() + line.xToCursor(at.x(), QTextLine.CursorPosition.CursorOnCharacter)
            index = bisect_right([run.start for run in runs], place) - 1
            return runs[index] if index >= 0 and place < runs[index].end else None
    return None


def who(run: TintRun) -> str:
    """Origin of a tinted run, for its tooltip."""
    if run.token == TOKENS["corrected"]:
        return tr("The model's token: the draft was rejected here")
    if not run.by:
        return tr("Drafted, accepted by the model")
    return tr("Drafted {by}, accepted by the model", by=proposer(run.by).by)

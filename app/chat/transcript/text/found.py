"""Words that a search found, marked in the text of a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtGui import QColor, QTextCursor
from PySide6.QtWidgets import QTextEdit

from app.chat.transcript.text.tint import TintRun, in_utf16
from app.theme.theme import Theme

SHARE = 0.4
"""Share of the accent colour in the background of a found word."""
Find = Callable[[str], list[tuple[int, int]]]
"""(start, end) of each match in a text, in order and apart."""


class MatchPlace(NamedTuple):
    """A match in a message: in its thinking or in its text, counted from 0 there."""

    thinking: bool
    ordinal: int


class TextMatch(NamedTuple):
    """A match in a chat, in the message of this id."""

    message: str
    place: MatchPlace


def mark(view: QTextEdit, find: Find | None, theme: Theme, current: int = -1) -> int:
    """Mark in ``view`` what ``find`` finds, nothing for None, the match ``current`` more strongly than others; returns
    how many there are."""
    text = view.toPlainText() if find is not None else ""
    runs = in_utf16([TintRun(start, end, "") for start, end in find(text)], text) if find is not None else []
    selections = []
    for number, run in enumerate(runs):
        selection = QTextEdit.ExtraSelection()
        selection.cursor = _at(view, run.start)
        selection.cursor.setPosition(run.end, QTextCursor.MoveMode.KeepAnchor)
        strong = number == current
        selection.format.setBackground(QColor(theme.tokens.accent if strong else theme.tint("accent", SHARE)))
        if strong:
            selection.format.setForeground(QColor(theme.tokens.on_accent))
        selections.append(selection)
    if selections or view.extraSelections():
        view.setExtraSelections(selections)
    return len(runs)


def reach(view: QTextEdit, number: int, across: bool) -> int:
    """How far below the top of ``view`` a marked match lies, pixels; ``across``: bring it into the width, too."""
    selections = view.extraSelections()  # a cursor lives as long as the list that it is in
    place = view.cursorRect(_at(view, selections[number].cursor.selectionStart()))
    bar = view.horizontalScrollBar()
    if across and not 0 <= place.left() <= view.viewport().width() - place.width():
        bar.setValue(bar.value() + place.left() - view.viewport().width() // 2)
    return place.top()


def _at(view: QTextEdit, position: int) -> QTextCursor:
    cursor = QTextCursor(view.document())
    cursor.setPosition(position)
    return cursor

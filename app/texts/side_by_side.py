"""Two answers to one prompt side by side, with the place marked where they differ first."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QColor, QTextCursor, QTextFormat
from PySide6.QtWidgets import QDialog, QGridLayout, QLabel, QTextEdit, QVBoxLayout, QWidget

from app.language import tr
from app.texts.difference import parting, parts_at
from app.theme.room import room_of
from app.theme.theme import Theme
from app.theme.widgets import fill, named

WIDTH_PX, HEIGHT_PX = 860, 480
_REST, _PLACE = 0.12, 0.34
"""Strengths of the marks on all that follows, and on the first word that differs."""


class Side(NamedTuple):
    """One answer. ``heading`` names its setting, ``figures`` how it went."""

    heading: str
    figures: str
    text: str


class BothTexts(QWidget):
    """Both answers under a sentence on where they differ. ``about`` names the prompt."""

    def __init__(self, one: Side, other: Side, about: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        found = parting(one.text, other.text)
        if found is None:
            sentence = tr("Both texts are the same.")
        else:
            sentence = tr("The answers differ {where}.", where=parts_at(found))
        if found is not None and one.figures != other.figures:
            sentence += " " + tr("Their speeds are those of unlike answers.")
        self._found, self._theme = found, theme
        self.sentence = _label(f"{sentence} {about}".strip(), "mute")
        grid = fill(QGridLayout(self), (self.sentence, 0, 0, 1, 2), margins=0, spacing=(16, 8))
        self.views: list[QTextEdit] = []
        for column, side in enumerate((one, other)):
            grid.addWidget(_label(side.heading, "figure"), 1, column)
            if side.figures:
                grid.addWidget(_label(side.figures, "caption"), 2, column)
            view = _view(side)
            self.views.append(view)
            grid.addWidget(view, 3, column)
            grid.setColumnStretch(column, 1)
            if found is not None:
                _go_to(view, found.at)
        grid.setRowStretch(3, 1)
        self._mark()
        theme.changed.connect(self._mark)

    def _mark(self) -> None:
        """Mark the differences in the present theme's colours."""
        if self._found is None:
            return
        for view in self.views:
            view.setExtraSelections(_marks(view, self._found.at, self._theme))


class SideBySide(QDialog):
    """Closed with Escape. ``about`` names the prompt."""

    def __init__(self, one: Side, other: Side, about: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "side-by-side", windowTitle=tr("Both answers"))
        self.resize(QSize(theme.px(WIDTH_PX), theme.px(HEIGHT_PX)).boundedTo(room_of(self)))
        both = BothTexts(one, other, about, theme)
        self.sentence, self.views = both.sentence, both.views
        fill(QVBoxLayout(self), both, margins=(16, 12, 16, 16))


def _label(text: str, role: str) -> QLabel:
    return named(QLabel(text, textFormat=Qt.TextFormat.PlainText, wordWrap=True), role=role)


def _view(side: Side) -> QTextEdit:
    return named(QTextEdit(plainText=side.text, readOnly=True, tabChangesFocus=True), title=side.heading)


def _cursor(view: QTextEdit, at: int, move: QTextCursor.MoveOperation) -> QTextCursor:
    """Cursor that selects the text from the character ``at`` to where the move ends."""
    cursor = QTextCursor(view.document())
    cursor.setPosition(len(view.toPlainText()[:at].encode("utf-16-le")) // 2)  # as Qt counts
    cursor.movePosition(move, QTextCursor.MoveMode.KeepAnchor)
    return cursor


def _go_to(view: QTextEdit, at: int) -> None:
    view.setTextCursor(_cursor(view, at, QTextCursor.MoveOperation.NoMove))
    view.ensureCursorVisible()


def _marks(view: QTextEdit, at: int, theme: Theme) -> list[QTextEdit.ExtraSelection]:
    """Selections that tint the text from ``at`` on, and its first word more so."""
    marks = []
    for move, share in ((QTextCursor.MoveOperation.End, _REST), (QTextCursor.MoveOperation.EndOfWord, _PLACE)):
        mark = QTextEdit.ExtraSelection()
        mark.cursor = _cursor(view, at, move)
        mark.format.setBackground(QColor(theme.tint("warn", share)))
        mark.format.setProperty(QTextFormat.Property.UserProperty, share)
        marks.append(mark)
    return marks


class MarkedText(QWidget):
    """One text in a place of its own, marked from the character ``at`` on, where it leaves another; None: nowhere."""

    def __init__(self, side: Side, at: int | None, theme: Theme) -> None:
        super().__init__()
        self._at, self._theme = at, theme
        self.view = _view(side)
        fill(QVBoxLayout(self), self.view, margins=0)
        if at is not None:
            _go_to(self.view, at)
            self._mark()
            theme.changed.connect(self._mark)

    def _mark(self) -> None:
        assert self._at is not None
        self.view.setExtraSelections(_marks(self.view, self._at, self._theme))

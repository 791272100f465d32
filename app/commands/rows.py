"""The list of the palette: the commands that a search leaves, the letters it found, keys or a reason at the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, QPointF, QRect, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QTextCharFormat, QTextLayout, QTextOption
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.commands.match import TitleMatch, match
from app.commands.registry import Command
from app.theme.direction import direction, draw_text, mirror
from app.theme.lists import draw_chosen
from app.theme.theme import CAPTION_PX, TEXT_PX, Theme
from app.theme.widgets import tip

Index = QModelIndex | QPersistentModelIndex
ROW_PX, INSET_PX = 34, 12
MOST = 60
"""Number of commands that are shown at most; who looks for another types more letters."""


class FoundCommand(NamedTuple):
    """A command with the places of the letters of its words that were searched for."""

    command: Command
    places: tuple[int, ...] = ()


def find(commands: Sequence[Command], words: str, recent: Sequence[str]) -> list[FoundCommand]:
    """Return the commands that have the words, be it in English, best first; among equals those that can be done, then
    those run last, then those that have them sooner.

    Without words: those run last, then the others that are not quiet.
    """
    ranks = {name: len(recent) - at for at, name in enumerate(recent)}
    if not words.strip():
        shown = [command for command in commands if not command.quiet or command.name in ranks]
        return [FoundCommand(command) for command in sorted(shown, key=lambda one: -ranks.get(one.name, 0))][:MOST]
    matched = ((command, found) for command in commands if (found := _match(words, command)) is not None)
    best = sorted(matched, key=lambda each: (-each[1].points, _place(each[0], ranks), _at(*each)))
    return [FoundCommand(command, found.places) for command, found in best[:MOST]]


def _match(words: str, command: Command) -> TitleMatch | None:
    """The better match of the command's words and of its English ones, whose letters are not on show."""
    found, english = match(words, command.words), command.english
    other = match(words, english) if english != command.words else None
    return found if other is None or (found and found.points >= other.points) else TitleMatch(other.points, ())


def _place(command: Command, ranks: Mapping[str, int]) -> tuple[bool, int, bool]:
    """Place among equals: what can be done comes first, of that what was run last."""
    return bool(command.refused), -ranks.get(command.name, 0), command.quiet


def _at(command: Command, found: TitleMatch) -> int:
    """Position in the title at which the words begin; those of the group are before it."""
    return max(0, found.begins - (len(command.words) - len(command.title)))


class CommandRows(QAbstractListModel):
    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[FoundCommand] = []

    def show_found(self, rows: list[FoundCommand]) -> None:
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def found(self, index: Index) -> FoundCommand:
        return self._rows[index.row()]

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        command = self._rows[index.row()].command
        if role == Qt.ItemDataRole.DisplayRole:
            return command.words
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return ", ".join(part for part in (command.words, command.keys, command.refused) if part)
        if role == Qt.ItemDataRole.ToolTipRole and command.refused:
            return tip(command.refused)
        return None


class CommandDelegate(QStyledItemDelegate):
    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(80, self._theme.px(ROW_PX))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        assert isinstance(model, CommandRows)
        found, theme = model.found(index), self._theme
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            draw_chosen(painter, option.rect, theme)
        inner = option.rect.adjusted(INSET_PX, 0, -INSET_PX, 0)
        aside = found.command.refused or found.command.keys
        words = inner.adjusted(0, 0, -self._aside(painter, inner, aside), 0)
        self._words(painter, mirror(words, inner), found)
        painter.restore()

    def _aside(self, painter: QPainter, rect: QRect, text: str) -> int:
        """Paint keys or a reason at the end, in at most half of the row; the pixels that they take."""
        if not text:
            return 0
        painter.setFont(self._theme.ui_font(CAPTION_PX))
        painter.setPen(self._theme.color("mute"))
        shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, rect.width() // 2)
        draw_text(painter, rect, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, shown)
        return painter.fontMetrics().horizontalAdvance(shown) + 2 * INSET_PX

    def _words(self, painter: QPainter, rect: QRect, found: FoundCommand) -> None:
        """Paint the words, the letters that were found in semibold, the group in the colour of captions."""
        command, places = found.command, set(found.places)
        before = len(command.words) - len(command.title)
        usual, bold = self._theme.ui_font(TEXT_PX), self._theme.ui_font(TEXT_PX, QFont.Weight.DemiBold)
        text = QFontMetrics(bold if places else usual).elidedText(
            command.words.replace("\n", " "), Qt.TextElideMode.ElideRight, rect.width()
        )
        layout, formats, at = QTextLayout(text, usual), [], 0
        while at < len(text):
            kind, end = (at in places, at < before), at + 1
            while end < len(text) and (end in places, end < before) == kind:
                end += 1
            marked, in_group = kind
            look = QTextCharFormat()
            look.setFont(bold if marked else usual)
            look.setForeground(self._theme.color("mute" if (in_group and not marked) or command.refused else "text"))
            formats.append(_piece(text, at, end, look))
            at = end
        option = QTextOption(QStyle.visualAlignment(painter.layoutDirection(), Qt.AlignmentFlag.AlignLeft))
        option.setTextDirection(direction(text) or painter.layoutDirection())
        option.setWrapMode(QTextOption.WrapMode.NoWrap)
        layout.setTextOption(option)
        layout.setFormats(formats)
        layout.beginLayout()
        line = layout.createLine()
        line.setLineWidth(rect.width())
        layout.endLayout()
        layout.draw(painter, QPointF(rect.left(), rect.center().y() + 1 - line.height() / 2))


def _piece(text: str, start: int, end: int, look: QTextCharFormat) -> QTextLayout.FormatRange:
    """The look of text[start:end], at Qt's places, which count UTF-16's units."""
    piece = QTextLayout.FormatRange()
    piece.start = len(text[:start].encode("utf-16-le")) // 2
    piece.length = len(text[start:end].encode("utf-16-le")) // 2
    piece.format = look
    return piece

"""The list of chats: Today, Yesterday, Earlier, or what a search found."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.history.records import Chat, SearchHit
from app.theme.theme import CAPTION_PX, SECTION_PX, Theme
from app.theme.widgets import named, tip

Index = QModelIndex | QPersistentModelIndex
RUNNING, UNREAD = "an answer is being written", "answered, not read yet"
DOT_PX = 7
ROW_PX = 33
EXCERPT_PX = 48
HEADING_PX = 32
INSET_PX = 10


class ChatListRow(NamedTuple):
    """A heading (``chat`` None) or a chat, with the place a search found in it, and in which message."""

    text: str
    chat: Chat | None = None
    excerpt: str = ""
    message: str = ""


def grouped(chats: Sequence[Chat], today: datetime.date) -> list[ChatListRow]:
    """``chats`` newest first, under headings by the day of their last use."""
    rows: list[ChatListRow] = []
    for chat in chats:
        age = (today - datetime.date.fromtimestamp(chat.updated)).days
        heading = "Today" if age <= 0 else "Yesterday" if age == 1 else "Earlier"
        if not any(row.chat is None and row.text == heading for row in rows):
            rows.append(ChatListRow(heading))
        rows.append(ChatListRow(chat.title, chat))
    return rows


class ChatListModel(QAbstractListModel):
    """Rows for a list view; editing a row renames the chat."""

    renamed = Signal(str, str)
    """(chat id, new title)."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[ChatListRow] = []
        self.open = ""
        """The id of the chat on screen."""
        self._marks: dict[str, str] = {}

    def set_marks(self, running: Iterable[str], unread: Iterable[str]) -> None:
        """The chats that are being answered, and those whose answer nobody has seen."""
        self._marks = dict.fromkeys(unread, UNREAD) | dict.fromkeys(running, RUNNING)
        if self._rows:
            self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    def mark(self, index: Index) -> str:
        """Activity in the chat of that row: RUNNING, UNREAD or ""."""
        chat = self.row(index).chat
        return self._marks.get(chat.id, "") if chat is not None else ""

    def show_chats(self, chats: Sequence[Chat]) -> None:
        self._replace(grouped(chats, datetime.date.today()))

    def show_found(self, found: Sequence[SearchHit]) -> None:
        heading = "Found" if found else "Nothing found"
        self._replace(
            [
                ChatListRow(heading),
                *(ChatListRow(item.chat.title, item.chat, item.excerpt, item.message) for item in found),
            ]
        )

    def row(self, index: Index) -> ChatListRow:
        return self._rows[index.row()]

    def index_of(self, chat_id: str) -> QModelIndex:
        """An invalid index when the chat is not listed."""
        for number, row in enumerate(self._rows):
            if row.chat is not None and row.chat.id == chat_id:
                return self.index(number)
        return QModelIndex()

    def rowCount(self, parent: Index = QModelIndex()) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return row.text
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole) and row.chat is not None:
            words = ": ".join(part for part in (row.text, self.mark(index)) if part)
            return tip(words) if role == Qt.ItemDataRole.ToolTipRole else words
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row, title = self._rows[index.row()], str(value).strip()
        if role != Qt.ItemDataRole.EditRole or row.chat is None or not title:
            return False
        self._rows[index.row()] = row._replace(text=title)
        self.dataChanged.emit(index, index)
        self.renamed.emit(row.chat.id, title)
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid() or self._rows[index.row()].chat is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable

    def _replace(self, rows: list[ChatListRow]) -> None:
        if rows != self._rows:
            self.beginResetModel()
            self._rows = rows
            self.endResetModel()


class ChatDelegate(QStyledItemDelegate):
    """Paints a row: the chosen chat raised, headings small and muted."""

    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        model = index.model()
        assert isinstance(model, ChatListModel)
        row = model.row(index)
        height = HEADING_PX if row.chat is None else EXCERPT_PX if row.excerpt else ROW_PX
        return QSize(80, round(height * self._theme.scale))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        assert isinstance(model, ChatListModel)
        row = model.row(index)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        inner = option.rect.adjusted(INSET_PX, 0, -INSET_PX, 0)
        if row.chat is None:
            self._heading(painter, inner, row.text)
        else:
            self._ground(painter, option, row.chat.id == model.open)
            if mark := model.mark(index):
                self._dot(painter, inner, mark)
                inner.setRight(inner.right() - 2 * DOT_PX)
            self._chat(painter, inner, row)
        painter.restore()

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        return named(QLineEdit(parent, maxLength=200), title="Title of the chat")

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        editor.setGeometry(option.rect)

    def _heading(self, painter: QPainter, rect: QRect, text: str) -> None:
        font = self._theme.ui_font(SECTION_PX)
        font.setLetterSpacing(font.SpacingType.AbsoluteSpacing, 1.0)
        painter.setFont(font)
        painter.setPen(self._theme.color("mute"))
        painter.drawText(
            rect.adjusted(0, 0, 0, -6), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom, text.upper()
        )

    def _dot(self, painter: QPainter, rect: QRect, mark: str) -> None:
        """A ring while an answer is written, a disc once it can be read."""
        place = QRectF(rect.right() - DOT_PX, rect.center().y() - DOT_PX / 2 + 0.5, DOT_PX, DOT_PX)
        colour = self._theme.color("accent" if mark == RUNNING else "good")
        painter.setPen(QPen(colour, 1.5) if mark == RUNNING else Qt.PenStyle.NoPen)
        painter.setBrush(Qt.BrushStyle.NoBrush if mark == RUNNING else colour)
        painter.drawEllipse(place)

    def _ground(self, painter: QPainter, option: QStyleOptionViewItem, selected: bool) -> None:
        """Raised is the chat on screen, whichever row the keyboard or a menu is at."""
        if selected or option.state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("raised", 1.0 if selected else 0.5))
            painter.drawRoundedRect(option.rect, 6, 6)
        if option.state & QStyle.StateFlag.State_HasFocus and option.state & QStyle.StateFlag.State_KeyboardFocusChange:
            painter.setPen(self._theme.color("accent"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(option.rect.adjusted(0, 0, -1, -1), 6, 6)

    def _chat(self, painter: QPainter, rect: QRect, row: ChatListRow) -> None:
        lines = [(row.text, self._theme.ui_font(), "text")]
        if row.excerpt:
            lines.append((row.excerpt, self._theme.ui_font(CAPTION_PX), "mute"))
        height = rect.height() // len(lines)
        for number, (text, font, token) in enumerate(lines):
            painter.setFont(font)
            painter.setPen(self._theme.color(token))
            place = QRect(rect.left(), rect.top() + number * height, rect.width(), height)
            shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
            painter.drawText(place, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)

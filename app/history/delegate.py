"""Painting of the rows of the list of chats."""

from __future__ import annotations

from PySide6.QtCore import QObject, QPoint, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.history.chat_list import ARCHIVED, RUNNING, ChatListModel, ChatListRow, Index
from app.language import figure, tr
from app.theme.direction import draw_text, mirror, mirrored
from app.theme.lists import draw_chosen
from app.theme.theme import CAPTION_PX, SECTION_PX, Theme
from app.theme.widgets import named

DOT_PX = 7
ROW_PX = 33
EXCERPT_PX = 48
INSET_PX = 10
INDENT_PX = 16
CHIP_PX = 18
"""Height of a tag."""
CHIP_SHARE = 0.45
"""Most of a row's width that its tags take."""


class ChatDelegate(QStyledItemDelegate):
    """Paints a row: the chosen chat raised, headings small and muted, tags as chips at its end."""

    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._room = QRect()
        """The row that is painted."""
        self.drop_row = -1
        """The row on which something is being dragged, -1 for none."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        height = EXCERPT_PX if _model(index).row(index).excerpt else ROW_PX
        return QSize(80, round(height * self._theme.scale))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = _model(index)
        row = model.row(index)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._room = option.rect
        inner = self._inner(option.rect, row)
        if row.chat is None and not row.folds:
            self._heading(painter, inner, row.text)
        else:
            self._ground(painter, option, row.chat is not None and row.chat.id == model.open)
            if row.folds:
                self._fold(painter, inner, row)
            elif row.chat is not None:
                if mark := model.mark(index):
                    self._dot(painter, inner, mark)
                    inner.setRight(inner.right() - 2 * DOT_PX)
                chips = self._chips(inner, row)
                for place, tag in chips:
                    self._chip(painter, place, tag)
                self._chat(painter, inner, row, inner.right() - chips[-1][0].left() + 6 if chips else 0)
        if index.row() == self.drop_row:
            painter.setPen(QPen(self._theme.color("accent"), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(option.rect).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        painter.restore()

    def tag_at(self, rect: QRect, index: Index, at: QPoint) -> str:
        """The tag whose chip is at this place of the row, "" for none."""
        model = _model(index)
        at = mirror(QRect(at, QSize(1, 1)), rect).topLeft()
        inner = self._inner(rect, model.row(index))
        if model.mark(index):
            inner.setRight(inner.right() - 2 * DOT_PX)
        chat = model.row(index).chat
        found = (tag for place, tag in self._chips(inner, model.row(index)) if place.contains(at))
        tag = next(found, "")
        return tag if chat is not None and tag in chat.tags else ""

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        title = tr("Name of the folder") if _model(index).row(index).folder is not None else tr("Title of the chat")
        return named(QLineEdit(parent, maxLength=200), title=title)

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        editor.setGeometry(option.rect)

    def _inner(self, rect: QRect, row: ChatListRow) -> QRect:
        return rect.adjusted(INSET_PX + (self._theme.px(INDENT_PX) if row.inside else 0), 0, -INSET_PX, 0)

    def _heading(self, painter: QPainter, rect: QRect, text: str) -> None:
        font = self._theme.ui_font(SECTION_PX)
        font.setLetterSpacing(font.SpacingType.AbsoluteSpacing, 1.0)
        painter.setFont(font)
        painter.setPen(self._theme.color("mute"))
        align = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom
        draw_text(painter, self._at(rect.adjusted(0, 0, 0, -6)), align, text.upper())

    def _fold(self, painter: QPainter, rect: QRect, row: ChatListRow) -> None:
        """A folder or the archive: an arrow, the name, and how many chats are inside."""
        side = self._theme.px(7)
        arrow, turn = QRectF(self._at(QRect(rect.left(), rect.top(), side, rect.height()))), -1 if mirrored() else 1
        centre = QPointF(arrow.center().x(), rect.center().y() + 0.5)
        tips = (
            ((-0.25, -0.5), (0.3, 0.0), (-0.25, 0.5)) if not row.opened else ((-0.5, -0.25), (0.0, 0.3), (0.5, -0.25))
        )
        pen = QPen(self._theme.color("mute"), 1.5)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setPen(pen)
        painter.drawPolyline(QPolygonF([centre + QPointF(turn * x * side, y * side) for x, y in tips]))
        painter.setFont(self._theme.ui_font(CAPTION_PX))
        count = figure(row.chats)
        room = painter.fontMetrics().horizontalAdvance(count)
        painter.setPen(self._theme.color("mute"))
        draw_text(painter, self._at(rect), Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, count)
        left = rect.adjusted(self._theme.px(INDENT_PX), 0, -room - 8, 0)
        self._line(painter, left, row.text, "mute" if row.archive else "text")

    def _dot(self, painter: QPainter, rect: QRect, mark: str) -> None:
        """A ring while an answer is written, a disc once it can be read."""
        column = self._at(QRect(rect.right() - DOT_PX, rect.top(), DOT_PX, rect.height()))
        place = QRectF(column.left(), rect.center().y() - DOT_PX / 2 + 0.5, DOT_PX, DOT_PX)
        colour = self._theme.color("accent" if mark == RUNNING else "good")
        painter.setPen(QPen(colour, 1.5) if mark == RUNNING else Qt.PenStyle.NoPen)
        painter.setBrush(Qt.BrushStyle.NoBrush if mark == RUNNING else colour)
        painter.drawEllipse(place)

    def _chips(self, rect: QRect, row: ChatListRow) -> list[tuple[QRect, str]]:
        """Places and words of the chips of a row, from the right; the last says how many more there are."""
        if row.chat is None:
            return []
        words = [*((ARCHIVED,) if row.chat.archived and not row.inside else ()), *row.chat.tags]
        metrics = QFontMetrics(self._theme.ui_font(SECTION_PX))
        high, right = self._theme.px(CHIP_PX), rect.right()
        least = rect.right() - round(CHIP_SHARE * rect.width())
        chips: list[tuple[QRect, str]] = []
        for number, word in enumerate(words):
            more = f"+{len(words) - number}"
            room = 0 if number == len(words) - 1 else metrics.horizontalAdvance(more) + 16
            shown = word
            wide = metrics.horizontalAdvance(shown) + 12
            if right - wide - room < least and not chips:
                wide = max(24, right - room - least)
            elif right - wide - room < least:
                shown, wide = more, metrics.horizontalAdvance(more) + 12
            top = rect.top() + (rect.height() // (2 if row.excerpt else 1) - high) // 2
            chips.append((QRect(right - wide, top, wide, high), shown))
            if shown is more:
                break
            right -= wide + 4
        return chips

    def _chip(self, painter: QPainter, place: QRect, word: str) -> None:
        place = self._at(place)
        painter.setPen(QPen(self._theme.color("line"), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(QRectF(place).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setFont(self._theme.ui_font(SECTION_PX))
        painter.setPen(self._theme.color("mute"))
        shown = painter.fontMetrics().elidedText(word, Qt.TextElideMode.ElideRight, place.width() - 10)
        draw_text(painter, place, Qt.AlignmentFlag.AlignCenter, shown)

    def _ground(self, painter: QPainter, option: QStyleOptionViewItem, selected: bool) -> None:
        """Raised is the chat on screen, whichever row the keyboard or a menu is at."""
        if selected or option.state & QStyle.StateFlag.State_MouseOver:
            draw_chosen(painter, option.rect, self._theme, 1.0 if selected else 0.5)
        if option.state & QStyle.StateFlag.State_HasFocus and option.state & QStyle.StateFlag.State_KeyboardFocusChange:
            painter.setPen(self._theme.color("accent"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(option.rect.adjusted(0, 0, -1, -1), 6, 6)

    def _chat(self, painter: QPainter, rect: QRect, row: ChatListRow, chips: int) -> None:
        """``chips`` is the width that these take of the title's line."""
        half = rect.height() // 2 if row.excerpt else rect.height()
        self._line(painter, QRect(rect.left(), rect.top(), rect.width() - chips, half), row.text, "text")
        if not row.excerpt:
            return
        below = QRect(rect.left(), rect.top() + half, rect.width(), half)
        self._line(painter, below, row.excerpt, "mute", CAPTION_PX)

    def _line(self, painter: QPainter, rect: QRect, text: str, token: str, size: int | None = None) -> None:
        painter.setFont(self._theme.ui_font() if size is None else self._theme.ui_font(size))
        painter.setPen(self._theme.color(token))
        shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
        draw_text(painter, self._at(rect), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)

    def _at(self, rect: QRect) -> QRect:
        """Where a part of the row lies, which is mirrored with the window."""
        return mirror(rect, self._room)


def _model(index: Index) -> ChatListModel:
    model = index.model()
    assert isinstance(model, ChatListModel)
    return model

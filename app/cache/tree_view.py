"""The prefix tree on screen: a row a run, a bar as long as the run, what it reads, and where it lies."""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QModelIndex, QPersistentModelIndex, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import QAbstractItemView, QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.cache import words
from app.cache.tree_model import TreeModel, TreeRow, rows_of
from app.charts.hues import ChatHues
from app.language import figure, tr
from app.theme.direction import TO_THE_RIGHT, draw_text
from app.theme.theme import CAPTION_PX, Theme
from app.theme.widgets import named
from engine.protocol import RadixTree

ROW_PX = 24
INDENT_PX = 12
BAR_PX = 90
TOKENS_PX = 52
AGE_S = 2.0
"""Seconds that the idle times of runs may be behind."""
DEEPEST = 12
"""Deeper levels are not indented further: their text would have no room."""


class RunDelegate(QStyledItemDelegate):
    """Paints one run. The bar: full on the device, an outline in RAM, a dashed one on disk."""

    def __init__(self, theme: Theme, hues: ChatHues, model: TreeModel, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme, self._hues, self._model = theme, hues, model

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(200, max(ROW_PX, self._theme.px(ROW_PX)))

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        row = self._model.row(index)
        theme, area = self._theme, option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(area, theme.color("raised"))
        if option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(theme.color("accent"), 1))
            painter.drawRect(area.adjusted(0, 0, -1, -1))
        painter.setFont(theme.ui_font(CAPTION_PX))
        painter.setLayoutDirection(TO_THE_RIGHT)
        left = area.left() + 8
        for level in range(min(row.depth, DEEPEST)):
            painter.fillRect(QRect(left + level * INDENT_PX, area.top(), 1, area.height()), theme.color("line"))
        left += min(row.depth, DEEPEST) * INDENT_PX
        self._bar(painter, row, QRect(left, area.center().y() - 3, BAR_PX, 7))
        strong, faint = theme.color("text"), theme.color("mute")
        painter.setPen(strong if row.current else faint)
        middle = Qt.AlignmentFlag.AlignVCenter
        tokens = QRect(left + BAR_PX, area.top(), theme.px(TOKENS_PX) - 8, area.height())
        painter.drawText(tokens, middle | Qt.AlignmentFlag.AlignRight, figure(row.node.tokens))
        metrics, facts = painter.fontMetrics(), words.facts(row.node)
        room = area.right() - 8 - tokens.right() - 12
        # The facts that matter least go first where the column is narrow; the text keeps two fifths of it.
        while facts and metrics.horizontalAdvance(" · ".join(facts)) > 0.6 * room:
            facts.pop()
        said = " · ".join(facts)
        text = QRect(tokens.right() + 12, area.top(), room - metrics.horizontalAdvance(said) - 12, area.height())
        shown = metrics.elidedText(words.readable(row.node.text), Qt.TextElideMode.ElideRight, text.width())
        draw_text(painter, text, middle | Qt.AlignmentFlag.AlignLeft, shown)
        painter.setPen(faint)
        painter.drawText(area.adjusted(0, 0, -8, 0), middle | Qt.AlignmentFlag.AlignRight, said)

    def _bar(self, painter: QPainter, row: TreeRow, room: QRect) -> None:
        node = row.node
        width = max(3, round(room.width() * node.tokens / self._model.longest))
        hue = self._hues.of(node.chat)
        color = QColor(self._theme.chat_hues[hue - 1]) if hue else self._theme.color("mute")
        bar = QRect(room.left(), room.top(), width, room.height())
        if node.place == "device":
            painter.fillRect(bar, color)
            return
        style = Qt.PenStyle.SolidLine if node.place == "host" else Qt.PenStyle.DotLine
        painter.setPen(QPen(color, 1, style))
        painter.drawRect(bar.adjusted(0, 0, -1, -1))


class TreeView(QListView):
    """Follows updates without moving what is read. ``chosen`` carries the chat of a run, on a click or Enter."""

    chosen = Signal(str)
    pointed = Signal(object)
    """The TreeRow under the mouse, None for none."""

    def __init__(self, theme: Theme, hues: ChatHues, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = TreeModel(self)
        self._tree: RadixTree | None = None
        self._came = self._told = 0.0
        self._chat = ""
        named(self, "prefix-tree", title=tr("Prefix tree"))
        self.setLayoutDirection(TO_THE_RIGHT)
        self.setModel(self.rows)
        self.setItemDelegate(RunDelegate(theme, hues, self.rows, self))
        self.setUniformItemSizes(True)
        self.setMouseTracking(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setMinimumSize(QSize(160, 60))
        self.clicked.connect(self._choose)
        self.entered.connect(lambda index: self.pointed.emit(self.rows.row(index)))
        theme.changed.connect(self.viewport().update)

    def show_tree(self, tree: RadixTree) -> None:
        self._tree, self._came = tree, time.monotonic()
        self._refresh()

    def grow_older(self) -> None:
        """An idle engine sends no tree: count on for how long its runs have not been used. Cheap to call often."""
        if self._tree is not None and time.monotonic() - self._told > AGE_S and self.isVisible():
            self._refresh()

    def show_chat(self, chat: str) -> None:
        """Highlight the path of this chat."""
        if chat != self._chat:
            self._chat = chat
            self._refresh()

    def place(self, row: TreeRow) -> QRect:
        """Rectangle of the row, in this widget's coordinates; empty for a row that is not in the tree."""
        at = next((i for i, one in enumerate(self.rows.rows) if one.node.id == row.node.id), -1)
        return self.visualRect(self.rows.index(at)) if at >= 0 else QRect()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self._choose(self.currentIndex())
        else:
            super().keyPressEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.pointed.emit(None)

    def _refresh(self) -> None:
        if self._tree is None:
            return
        top = self.indexAt(self.viewport().rect().topLeft())
        anchor = self.rows.row(top) if top.isValid() else None
        lies = self.visualRect(top).top() if top.isValid() else 0
        self._told = time.monotonic()
        self.rows.show_rows(rows_of(self._tree, self._chat, self._told - self._came))
        if anchor is not None and not (place := self.place(anchor)).isNull():
            bar = self.verticalScrollBar()
            bar.setValue(bar.value() + place.top() - lies)

    def _choose(self, index: QModelIndex) -> None:
        row = self.rows.row(index)
        if row.node.chat:
            self.chosen.emit(row.node.chat)

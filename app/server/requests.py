"""Who asks the server what: the last requests, without their texts."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem, QVBoxLayout, QWidget

from app.language import tr
from app.server import words
from app.server.state import ServerState
from app.theme.theme import Theme
from app.theme.widgets import caption, fill, named, tip

_ROWS, _ROW_PX = 8, 26
"""Rows that are seen at once; the rest is scrolled."""


class RequestsView(QWidget):
    """The newest request is the first row."""

    def __init__(self, state: ServerState, theme: Theme) -> None:
        super().__init__()
        self._state, self._theme = state, theme
        self.summary = caption(name="server.requests.summary")
        self.table = named(QTableWidget(0, len(words.COLUMNS)), "server.requests", title=tr("Requests"), showGrid=False)
        self.table.setHorizontalHeaderLabels(list(words.COLUMNS))
        tokens = self.table.horizontalHeaderItem(words.TOKENS_COLUMN)
        assert tokens is not None
        tokens.setToolTip(tip(words.TOKENS))
        self.table.verticalHeader().hide()
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        named(self.table, tabKeyNavigation=False, wordWrap=False)
        header = self.table.horizontalHeader()
        header.setHighlightSections(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(words.REQUEST_COLUMN, QHeaderView.ResizeMode.Stretch)
        fill(QVBoxLayout(self), self.summary, self.table, margins=0, spacing=8)
        state.requests_changed.connect(self._show)
        theme.changed.connect(self._fit)
        self._show()

    def _show(self) -> None:
        told = self._state.requests
        self.summary.setText(words.summary(told))
        self.table.setRowCount(len(told.last))
        for number, request in enumerate(told.last):
            for column, text in enumerate(words.row(request)):
                if (cell := self.table.item(number, column)) is None:
                    self.table.setItem(number, column, cell := QTableWidgetItem())
                cell.setText(text)
                cell.setToolTip(tip(text))
        self._fit()

    def _fit(self) -> None:
        rows, row = self.table.rowCount(), self._theme.px(_ROW_PX)
        self.table.setVisible(rows > 0)
        self.table.verticalHeader().setDefaultSectionSize(row)
        self.table.setFixedHeight(
            (min(rows, _ROWS) + 1) * row + self.table.horizontalHeader().sizeHint().height() - row
        )

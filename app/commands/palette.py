"""The command palette: everything that the window can do in one list, found by a few letters."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QModelIndex, QObject, Qt
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QAbstractItemView, QApplication, QFrame, QLineEdit, QListView, QVBoxLayout, QWidget

from app.commands.registry import Command, Commands
from app.commands.rows import ROW_PX, CommandDelegate, CommandRows, find
from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import caption, fill, named, say

_WIDTH, _ROWS, _TOP = 620, 11, 0.1
"""Pixels at the usual text size; rows that show without scrolling; share of the window's height above it."""
_EDGE = 16
"""Pixels of the window at each side that it leaves free at least."""
_MOVES = {Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown}
NOTHING = tr("No command, chat or model has these letters. Try fewer of them.")


class Palette(QWidget):
    """Lies over ``window`` while it is open: a click beside it closes it. The keyboard stays in its field; where it was
    before it goes back to."""

    def __init__(self, commands: Commands, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._commands, self._theme, self._window = commands, theme, window
        self._all: list[Command] = []
        self._before: QWidget | None = None
        """The widget that had the keyboard."""
        self.hide()
        self.card = named(QFrame(self), "palette", title=tr("Commands"), card="palette")
        self.field = named(
            QLineEdit(placeholderText=tr("Find a command, a chat or a model")),
            "palette.field",
            title=tr("Find a command"),
        )
        self.rows = CommandRows(self)
        self.list = named(QListView(), "palette.list", title=tr("Commands found"), focusPolicy=Qt.FocusPolicy.NoFocus)
        self.list.setModel(self.rows)
        self.list.setItemDelegate(CommandDelegate(theme, self.list))
        named(self.list, uniformItemSizes=True, editTriggers=QAbstractItemView.EditTrigger.NoEditTriggers)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.said = caption(name="palette.said")
        self._column = fill(QVBoxLayout(self.card), self.field, self.list, self.said, margins=8, spacing=8)
        self.field.textChanged.connect(self._search)
        self.field.installEventFilter(self)
        self.list.clicked.connect(self._run)
        self.list.selectionModel().currentChanged.connect(self._on_current)
        window.installEventFilter(self)
        theme.changed.connect(self._fit)

    def open(self) -> None:
        """Show all commands, those run last first."""
        if self.isHidden():
            self._before = QApplication.focusWidget()
        self._all = self._commands.all()
        self.field.clear()
        self._search("")
        self._fit()
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)

    def close_down(self) -> None:
        """Close, and give the keyboard back to where it was."""
        self.hide()
        before, self._before = self._before, None
        if before is not None and before.isVisible():
            before.setFocus(Qt.FocusReason.PopupFocusReason)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if not self.card.geometry().contains(event.position().toPoint()):
            self.close_down()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._window and event.type() is QEvent.Type.Resize and self.isVisible():
            self._fit()
        elif watched is self.field and event.type() is QEvent.Type.FocusOut and self.isVisible():
            if event.reason() not in (Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason):  # type: ignore[attr-defined]
                self.hide()  # the person went elsewhere
        elif watched is self.field and isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress:
            return self._on_key(event)
        return super().eventFilter(watched, event)

    def _on_key(self, event: QKeyEvent) -> bool:
        key = Qt.Key(event.key())
        if key == Qt.Key.Key_Escape:
            self.close_down()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._run(self.list.currentIndex())
        elif key in _MOVES:
            QApplication.sendEvent(self.list, event)
        else:
            return key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab)  # there is nowhere else to go
        return True

    def _search(self, words: str) -> None:
        self.rows.show_found(find(self._all, words, self._commands.recent))
        self.list.setVisible(bool(self.rows.rowCount()))
        say(self.said, "" if self.rows.rowCount() else NOTHING)
        self.list.setCurrentIndex(self.rows.index(0))
        self._fit()

    def _on_current(self, index: QModelIndex, _before: QModelIndex) -> None:
        """A screen reader stays at the field, and is told of the command that Enter runs."""
        words = self.rows.data(index, Qt.ItemDataRole.AccessibleTextRole) if index.isValid() else NOTHING
        self.field.setAccessibleDescription(str(words))
        say(self.said, "" if self.rows.rowCount() else NOTHING)

    def _run(self, index: QModelIndex) -> None:
        """Close first, so that what the command shows has the keyboard."""
        if not index.isValid():
            return
        command = self.rows.found(index).command
        if command.refused:
            say(self.said, command.refused)
            self._fit()
            return
        self.close_down()
        self._commands.run(command)

    def _fit(self) -> None:
        """Size and place in the window, as high as the rows that were found."""
        window, row = self._window.size(), self._theme.px(ROW_PX)
        self.resize(window)
        width = min(self._theme.px(_WIDTH), window.width() - 2 * _EDGE)
        around = self.field.sizeHint().height() + 2 * (8 + _EDGE) + 3 * row
        rows = max(2, min(_ROWS, self.rows.rowCount(), (window.height() - around) // row))
        self.list.setFixedHeight(rows * row)
        self.card.setFixedWidth(width)
        self._column.activate()
        wraps = self._column.hasHeightForWidth()  # a sentence does
        height = self._column.heightForWidth(width) if wraps else self._column.sizeHint().height()
        top = max(_EDGE, min(round(_TOP * window.height()), window.height() - height - _EDGE))
        self.card.setGeometry((window.width() - width) // 2, top, width, height)

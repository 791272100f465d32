"""The left side: a new chat, search, the list of chats, and undo for a deleted one."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QModelIndex, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.history.chat_list import ChatDelegate, ChatListModel
from app.history.export import chat_to_markdown, file_name
from app.history.store import HistoryStore
from app.shortcuts import typed
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import fill, named

UNDO_MS = 8000
SEARCH_MS = 150
REFRESH_MS = 40


class ChatListView(QListView):
    """Delete deletes, F2 renames, Enter opens; letters go to the message."""

    delete_asked = Signal()
    open_asked = Signal()
    typed = Signal(str)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Delete:
            self.delete_asked.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.state() != self.State.EditingState:
            self.open_asked.emit()
        elif typed(event) and event.text() != " ":  # a space chooses the row
            self.typed.emit(event.text())
        else:
            super().keyPressEvent(event)


class SearchField(QLineEdit):
    """Down goes to what was found, Enter opens the first of it."""

    list_asked = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Down:
            self.list_asked.emit()
        else:
            super().keyPressEvent(event)


class Sidebar(QWidget):
    """Shows what the history holds; opening a chat is the window's business."""

    chat_selected = Signal(str)
    hit_selected = Signal(str, str, str)
    """(chat id, message id, words): the place that a search found."""
    typed = Signal(str)
    """Text that was typed while the keyboard was on the list."""
    new_chat = Signal()
    search_changed = Signal(str)
    """The words to find, at each key."""
    deleted = Signal(str)
    """A chat was deleted (it may be the one on screen); undo brings it back."""

    def __init__(self, history: HistoryStore, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._history = history
        self._current = ""
        self._deleted = ""
        named(self, surface="panel")
        self.setObjectName("sidebar")
        self.new_button = named(QPushButton("New chat", self), "new-chat", kind="primary")
        self.new_button.setStyleSheet("text-align: left;")
        self.new_button.clicked.connect(self.new_chat)
        self.search = SearchField(self)
        named(self.search, placeholderText="Search all chats", clearButtonEnabled=True)
        named(self.search, "chat-search", title="Search all chats")
        self.model = ChatListModel(self)
        self.list = self._make_list(theme)
        self._undo_bar, self._undo_label = self._make_undo_bar()
        fill(QVBoxLayout(self), self.new_button, self.search, (self.list, 1), self._undo_bar, margins=12, spacing=8)
        self._refresh_timer = self._timer("sidebar-refresh", REFRESH_MS, self.refresh)
        self._search_timer = self._timer("sidebar-search", SEARCH_MS, self.refresh)
        self._undo_timer = self._timer("sidebar-undo", UNDO_MS, lambda: self._undo_bar.setVisible(False))
        self.search.textChanged.connect(self._search_timer.start)
        self.search.textChanged.connect(self.search_changed)
        self.search.list_asked.connect(self._enter_list)
        self.search.returnPressed.connect(self._open_first)
        self.model.renamed.connect(history.set_title)
        history.changed.connect(self._on_changed)
        theme.changed.connect(self.list.viewport().update)
        self.refresh()

    def refresh(self) -> None:
        """Read the list again, keeping the chosen chat."""
        if self.list.state() == QAbstractItemView.State.EditingState:
            self._refresh_timer.start()
            return
        words = self.search.text().strip()
        if words:
            self.model.show_found(self._history.search(words))
        else:
            self.model.show_chats(self._history.chats())
        self.select(self._current)

    def select(self, chat_id: str) -> None:
        """Mark the chat that is on screen; "" marks none."""
        self._current = self.model.open = chat_id
        self.list.viewport().update()
        index = self.model.index_of(chat_id)
        if index.isValid():
            self.list.setCurrentIndex(index)
        else:
            self.list.clearSelection()
            self.list.setCurrentIndex(QModelIndex())

    def focus_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()

    def rename(self, chat_id: str) -> None:
        """Edit the title in the list."""
        index = self.model.index_of(chat_id)
        if index.isValid():
            self.list.edit(index)

    def delete(self, chat_id: str) -> None:
        chat = self._history.chat(chat_id)
        if chat is None:
            return
        self._history.delete(chat_id)
        self._deleted = chat_id
        self._undo_label.setText(f"Deleted “{_short(chat.title)}”")
        self._undo_bar.setVisible(True)
        self._undo_timer.start()
        self.refresh()
        self.deleted.emit(chat_id)

    def undo(self) -> None:
        """Bring the last deleted chat back."""
        self._undo_timer.stop()
        self._undo_bar.setVisible(False)
        if self._deleted:
            self._history.undelete(self._deleted)
            chat_id, self._deleted = self._deleted, ""
            self.refresh()
            self.chat_selected.emit(chat_id)

    def export(self, chat_id: str, path: Path) -> None:
        """Write the shown branch of the chat as Markdown. Raises OSError."""
        chat = self._history.chat(chat_id)
        if chat is not None:
            path.write_text(chat_to_markdown(self._history, chat), encoding="utf-8")

    # --- inside ----------------------------------------------------------------------------------------------------

    def _make_list(self, theme: Theme) -> ChatListView:
        view = named(ChatListView(self), "chat-list", title="Chats")
        view.setModel(self.model)
        view.setItemDelegate(ChatDelegate(theme, view))
        view.setMouseTracking(True)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.customContextMenuRequested.connect(self._menu)
        view.typed.connect(self.typed)
        view.clicked.connect(self._open)
        view.open_asked.connect(lambda: self._open(view.currentIndex()))
        view.delete_asked.connect(lambda: self.delete(self._id(view.currentIndex())))
        return view

    def _make_undo_bar(self) -> tuple[QFrame, QLabel]:
        bar = named(QFrame(self), "undo-bar", surface="raised")
        label = named(QLabel(bar, wordWrap=True), role="caption")
        button = named(QPushButton("Undo", bar), "undo-delete", clicked=self.undo, kind="quiet")
        fill(QHBoxLayout(bar), (label, 1), button, margins=(10, 4, 4, 4))
        bar.setVisible(False)
        return bar, label

    def _timer(self, name: str, interval: int, slot: object) -> QTimer:
        timer = named(QTimer(self, singleShot=True, interval=interval), name)
        timer.timeout.connect(slot)
        return timer

    def _on_changed(self, _chat_id: str) -> None:
        self._refresh_timer.start()

    def _id(self, index: QModelIndex) -> str:
        chat = self.model.row(index).chat if index.isValid() else None
        return chat.id if chat is not None else ""

    def _first(self) -> QModelIndex:
        """The first chat of the list as the search has it now; an invalid index where there is none."""
        if self._search_timer.isActive():
            self._search_timer.stop()
            self.refresh()
        rows = (self.model.index(number) for number in range(self.model.rowCount()))
        return next((index for index in rows if self._id(index)), QModelIndex())

    def _enter_list(self) -> None:
        first = self._first()
        if first.isValid():
            self.list.setCurrentIndex(first)
            self.list.setFocus(Qt.FocusReason.TabFocusReason)

    def _open_first(self) -> None:
        if self.search.text().strip():
            self._open(self._first())

    def _open(self, index: QModelIndex) -> None:
        chat_id = self._id(index)
        if not chat_id:
            return
        self._current = chat_id
        if message := self.model.row(index).message:
            self.hit_selected.emit(chat_id, message, self.search.text().strip())
        else:
            self.chat_selected.emit(chat_id)

    def _menu(self, at: QPoint) -> None:
        chat_id = self._id(self.list.indexAt(at))
        if not chat_id:
            return
        menu = QMenu(self)
        menu.addAction("Rename", lambda: self.rename(chat_id))
        menu.addAction("Export to Markdown…", lambda: self._ask_export(chat_id))
        menu.addSeparator()
        menu.addAction("Delete", lambda: self.delete(chat_id))
        menu.exec(self.list.viewport().mapToGlobal(at))
        menu.deleteLater()

    def _ask_export(self, chat_id: str) -> None:
        chat = self._history.chat(chat_id)
        if chat is None:
            return
        start = str(Path.home() / file_name(chat))
        path, _ = QFileDialog.getSaveFileName(self, "Export to Markdown", start, "Markdown (*.md)")
        if not path:
            return
        try:
            self.export(chat_id, Path(path))
        except OSError as error:
            self._deleted = ""
            self._undo_label.setText(f"The file could not be written ({error.strerror}). Choose another folder.")
            self._undo_bar.setVisible(True)
            restyle(self._undo_bar)
            self._undo_timer.start()


def _short(title: str) -> str:
    return title if len(title) <= 40 else title[:39].rstrip() + "…"

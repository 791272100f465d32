"""The list of chats with the field for a search and the button of a new chat, and undo below it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QModelIndex, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.history.chat_list import ChatListModel
from app.history.list_view import ChatListView
from app.history.records import ListedChat
from app.history.store import HistoryStore
from app.language import tr
from app.theme.icons import icon
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import fill, named

UNDO_MS = 8000
SEARCH_MS = 150
REFRESH_MS = 40
MORE = tr("More: folders, tags, import and export")
ICON_PX = 16


class SearchField(QLineEdit):
    """Down goes to what was found, Enter opens the first of it."""

    list_asked = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Down:
            self.list_asked.emit()
        else:
            super().keyPressEvent(event)


class ListPanel(QWidget):
    """Shows, finds and renames what the history holds; opening a chat is the window's business."""

    chat_selected = Signal(str)
    hit_selected = Signal(str, str, str)
    """(chat id, message id, words): the place that a search found."""
    typed = Signal(str)
    """Text that was typed while the keyboard was on the list."""
    new_chat = Signal()
    search_changed = Signal(str)
    """The words to find, at each key."""

    def __init__(self, history: HistoryStore, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._history = history
        self._current = ""
        self._theme = theme
        self._undo: Callable[[], object] | None = None
        """Takes back what the bar at the bottom tells of."""
        named(self, surface="panel")
        self.setObjectName("sidebar")
        self.new_button = named(QPushButton(tr("New chat"), self), "new-chat", kind="primary")
        self.new_button.setStyleSheet("text-align: left;")
        self.new_button.clicked.connect(self.new_chat)
        self.search = SearchField(self)
        named(self.search, placeholderText=tr("Search all chats"), clearButtonEnabled=True)
        named(self.search, "chat-search", title=tr("Search all chats"))
        self.more = named(QToolButton(self), "chats-more", title=MORE, tooltip=MORE, kind="quiet")
        self.model = ChatListModel(self)
        self.list = self._make_list(theme)
        self._undo_bar, self._undo_label = self._make_undo_bar()
        head = fill(QHBoxLayout(), (self.new_button, 1), self.more, spacing=4)
        fill(QVBoxLayout(self), head, self.search, (self.list, 1), self._undo_bar, margins=12, spacing=8)
        theme.changed.connect(self._recolour)
        self._recolour()
        self._refresh_timer = self._timer("sidebar-refresh", REFRESH_MS, self.refresh)
        self._search_timer = self._timer("sidebar-search", SEARCH_MS, self.refresh)
        self._undo_timer = self._timer("sidebar-undo", UNDO_MS, lambda: self._undo_bar.setVisible(False))
        self.search.textChanged.connect(self._search_timer.start)
        self.search.textChanged.connect(self.search_changed)
        self.search.list_asked.connect(self._enter_list)
        self.search.returnPressed.connect(self._open_first)
        self.model.renamed.connect(history.set_title)
        self.model.folder_renamed.connect(lambda folder, name: history.save_folder(folder._replace(name=name)))
        history.changed.connect(self._on_changed)
        self.refresh()

    def refresh(self) -> None:
        """Read the list again, keeping the chosen chat."""
        if self.list.state() == QAbstractItemView.State.EditingState:
            self._refresh_timer.start()
            return
        words, place = self.search.text().strip(), self.list.verticalScrollBar().value()
        if words:
            self.model.show_found(self._history.search(words))
        else:
            self.model.show_chats(self._history.listed(), self._history.folders())
        self._mark()
        if not words:
            self.list.verticalScrollBar().setValue(place)

    def select(self, chat_id: str) -> None:
        """Mark the chat that is on screen; "" marks none."""
        self._current = chat_id
        self._mark()

    def _mark(self) -> None:
        self.model.open = self._current
        self.list.viewport().update()
        index = self.model.index_of(self._current)
        if index.isValid():
            self.list.setCurrentIndex(index)
        else:
            self.list.clearSelection()
            self.list.setCurrentIndex(QModelIndex())

    def focus_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()

    def rename(self, chat_id: str) -> None:
        """Edit the title in the list, which shows the chat for that wherever it is."""
        chat = self._listed(chat_id)
        if chat is None:
            return
        if not self.model.index_of(chat_id).isValid():
            self._uncover(chat)
        self._edit(self.model.index_of(chat_id))

    def rename_chosen(self) -> None:
        """Rename what is chosen where the keyboard is on the list, else the chat on screen."""
        index = self.list.currentIndex()
        if self.list.hasFocus() and index.isValid():
            self._edit(index)
        else:
            self.rename(self._current)

    def fold(self, index: QModelIndex, opened: bool) -> None:
        """Open or fold a folder or the archive."""
        row = self.model.row(index)
        if row.folds and row.opened != opened:
            if row.folder is not None:
                self._history.save_folder(row.folder._replace(folded=not opened))
            else:
                self.model.archive_open = opened
            self.refresh()
            self.list.setCurrentIndex(self.model.index(index.row()))

    def undo(self) -> None:
        """Take back what the bar at the bottom tells of."""
        self._undo_timer.stop()
        self._undo_bar.setVisible(False)
        if self._undo is not None:
            undo, self._undo = self._undo, None
            undo()
            self.refresh()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _make_list(self, theme: Theme) -> ChatListView:
        view = ChatListView(self.model, theme, self)
        view.typed.connect(self.typed)
        view.clicked.connect(self._open)
        view.open_asked.connect(lambda: self._open(view.currentIndex()))
        view.fold_asked.connect(self.fold)
        return view

    def _make_undo_bar(self) -> tuple[QFrame, QLabel]:
        bar = named(QFrame(self), "undo-bar", surface="raised")
        label = named(QLabel(bar, wordWrap=True), role="caption")
        self._undo_button = named(QPushButton(tr("Undo"), bar), "undo-delete", clicked=self.undo, kind="quiet")
        fill(QHBoxLayout(bar), (label, 1), self._undo_button, margins=(10, 4, 4, 4))
        bar.setVisible(False)
        return bar, label

    def _offer_undo(self, sentence: str, undo: Callable[[], object] | None) -> None:
        """Tell what was done for some seconds; without ``undo`` it cannot be taken back."""
        self._undo = undo
        self._undo_label.setText(sentence)
        self._undo_button.setVisible(undo is not None)
        self._undo_bar.setVisible(True)
        restyle(self._undo_bar)
        self._undo_timer.start()

    def _open_dialog(self, dialog: QDialog) -> None:
        """Show it over the window, which goes on meanwhile."""
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def _recolour(self) -> None:
        self.more.setIcon(icon(self._theme, "more", self._theme.px(ICON_PX)))

    def _listed(self, chat_id: str) -> ListedChat | None:
        return next((chat for chat in self._history.listed() if chat.id == chat_id), None)

    def _uncover(self, chat: ListedChat) -> None:
        """Show the row of a chat that a search, a folder or the archive hides."""
        self.search.clear()
        self._search_timer.stop()
        self.model.archive_open |= chat.archived
        for folder in self._history.folders():
            if folder.id == chat.folder and folder.folded:
                self._history.save_folder(folder._replace(folded=False))
        self.refresh()

    def _edit(self, index: QModelIndex) -> None:
        if index.isValid():
            self.list.setCurrentIndex(index)
            self.list.scrollTo(index)
            self.list.edit(index)

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
        if index.isValid() and self.model.row(index).folds:
            self.fold(index, not self.model.row(index).opened)
            return
        chat_id = self._id(index)
        if not chat_id:
            return
        self._current = chat_id
        if message := self.model.row(index).message:
            self.hit_selected.emit(chat_id, message, self.search.text().strip())
        else:
            self.chat_selected.emit(chat_id)

"""The view of the list of chats: its keys, its tags, and what is dragged there: a chat to another place, files to a
folder."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QWidget

from app.dropped import accept_copy, files_in
from app.history.chat_list import MIME, ChatListModel
from app.history.delegate import ChatDelegate
from app.language import tr
from app.shortcuts import typed
from app.theme.theme import Theme
from app.theme.widgets import named


class ChatListView(QListView):
    """Delete deletes, F2 renames, Enter opens, Left and Right fold a folder; letters go to the message."""

    delete_asked = Signal()
    open_asked = Signal()
    fold_asked = Signal(QModelIndex, bool)
    """(a folder or the archive, whether to open it)."""
    tag_asked = Signal(str)
    """A tag that was clicked."""
    dropped = Signal(str, object)
    """(chat id, the Target)."""
    typed = Signal(str)
    filed = Signal(str, list)
    """(the id of a folder, paths of the files that were dropped on it)."""

    def __init__(self, model: ChatListModel, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._delegate = ChatDelegate(theme, self)
        named(self, "chat-list", title=tr("Chats"))
        self.setModel(model)
        self.setItemDelegate(self._delegate)
        self.setMouseTracking(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDefaultDropAction(Qt.DropAction.MoveAction)
        self.setDropIndicatorShown(False)
        # Rows of one height are laid out without asking each of thousands for it.
        model.modelAboutToBeReset.connect(lambda: self.setUniformItemSizes(False))
        model.modelReset.connect(lambda: self.setUniformItemSizes(model.uniform))
        theme.changed.connect(self.scheduleDelayedItemsLayout)
        theme.changed.connect(self.viewport().update)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, index = event.key(), self.currentIndex()
        row = self._model.row(index) if index.isValid() else None
        if key == Qt.Key.Key_Delete:
            self.delete_asked.emit()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.state() != self.State.EditingState:
            self.open_asked.emit()
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right) and row is not None and row.folds:
            self.fold_asked.emit(index, key == Qt.Key.Key_Right)
        elif typed(event) and event.text() != " ":  # a space chooses the row
            self.typed.emit(event.text())
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        tag = self._tag_at(event.position().toPoint()) if event.button() == Qt.MouseButton.LeftButton else ""
        if tag:
            self.tag_asked.emit(tag)
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        over = bool(self._tag_at(event.position().toPoint()))
        self.viewport().setCursor(Qt.CursorShape.PointingHandCursor if over else Qt.CursorShape.ArrowCursor)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasFormat(MIME):
            event.acceptProposedAction()
        elif files_in(event.mimeData()):
            accept_copy(event)
        else:
            event.ignore()

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        super().dragMoveEvent(event)  # which scrolls near the edges
        index = self.indexAt(event.position().toPoint())
        chat = event.mimeData().hasFormat(MIME)
        if chat:
            allowed = self._model.target(index) is not None
        else:
            allowed = bool(self._folder_at(index) and files_in(event.mimeData()))
        self._show_drop(index.row() if allowed else -1)
        if not allowed:
            event.ignore()
        elif chat:
            event.acceptProposedAction()
        else:
            accept_copy(event)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self._show_drop(-1)
        super().dragLeaveEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        target, folder = self._model.target(index), self._folder_at(index)
        self._show_drop(-1)
        chat = bytes(event.mimeData().data(MIME).data()).decode(errors="replace")
        if chat and target is not None:
            event.acceptProposedAction()
            self.dropped.emit(chat, target)
        elif folder and (files := files_in(event.mimeData())):
            accept_copy(event)
            self.filed.emit(folder, files)
        self.stopAutoScroll()
        self.setState(self.State.NoState)

    def _folder_at(self, index: QModelIndex) -> str:
        """The id of the folder whose row that is, "" for another row."""
        folder = self._model.row(index).folder if index.isValid() else None
        return folder.id if folder is not None else ""

    def _show_drop(self, row: int) -> None:
        if row != self._delegate.drop_row:
            self._delegate.drop_row = row
            self.viewport().update()

    def _tag_at(self, at: QPoint) -> str:
        index = self.indexAt(at)
        return self._delegate.tag_at(self.visualRect(index), index, at) if index.isValid() else ""

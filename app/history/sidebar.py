"""The left side: a new chat, search, the list of chats with its folders, and undo for what was taken out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QModelIndex, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.history import search
from app.history.chat_list import ChatListModel, DropTarget
from app.history.duplicate import duplicate
from app.history.export import file_name
from app.history.list_view import ChatListView
from app.history.records import Folder, ListedChat, new_id
from app.history.store import HistoryStore
from app.history.tags import TagsDialog
from app.language import figure, tr
from app.theme.icons import icon
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import fill, menu_text, named

if TYPE_CHECKING:
    from app.history.transfer.export_job import ExportJob

UNDO_MS = 8000
SEARCH_MS = 150
REFRESH_MS = 40
EXPORTED = {"Markdown": ".md", "HTML": ".html", "PDF": ".pdf", tr("JSON, all branches"): ".json"}
NEW_FOLDER = tr("New folder")
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
        self._theme = theme
        self._jobs: list[ExportJob] = []
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
        self.more.clicked.connect(lambda: self._pop_up(self.list_menu(), self.more.rect().bottomLeft(), self.more))
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

    def new_folder(self, chat_id: str = "") -> None:
        """Make a folder, with this chat in it, and edit its name."""
        folder = Folder(new_id(), NEW_FOLDER)
        self._history.save_folder(folder)
        if chat_id:
            self._history.set_folder(chat_id, folder.id)
        self.search.clear()
        self._search_timer.stop()
        self.refresh()
        self._edit(self.model.index_of_folder(folder.id))

    def delete_folder(self, folder: Folder) -> None:
        """Remove a folder; its chats stay, in none."""
        inside = [chat.id for chat in self._history.listed() if chat.folder == folder.id]
        self._history.remove_folder(folder.id)
        self.refresh()

        def undo() -> None:
            with self._history.together():
                self._history.save_folder(folder)
                for chat_id in inside:
                    self._history.set_folder(chat_id, folder.id)

        deleted = tr("Deleted the folder “{name}”.", name=_short(folder.name))
        kept = tr("Its chat is still in the list.") if len(inside) == 1 else tr("Its chats are still in the list.")
        self._offer_undo(f"{deleted} {kept}" if inside else deleted, undo)

    def place(self, chat_id: str, target: DropTarget) -> None:
        """Move a chat to another place of the list: to the pinned ones, to a folder or out of it, to the archive."""
        chat = self._listed(chat_id)
        if chat is None:
            return
        if target.kind == "archive":
            self.archive(chat_id, True)
            return
        with self._history.together():
            self._history.set_archived(chat_id, False)
            self._history.set_pinned(chat_id, target.kind == "pinned")
            if target.kind == "list":
                self._history.set_folder(chat_id, target.folder)
        self.refresh()

    def archive(self, chat_id: str, archived: bool) -> None:
        """Take the chat out of the list, or bring it back."""
        chat = self._listed(chat_id)
        if chat is None or chat.archived == archived:
            return
        self._history.set_archived(chat_id, archived)
        self.refresh()
        if archived:
            self._offer_undo(
                tr("Archived “{title}”", title=_short(chat.title)), lambda: self._history.set_archived(chat_id, False)
            )

    def duplicate(self, chat_id: str) -> None:
        """Copy the chat with all its branches, and open the copy."""
        copy = duplicate(self._history, chat_id)
        if copy:
            self.search.clear()
            self._search_timer.stop()
            self._current = copy
            self.refresh()
            self.chat_selected.emit(copy)

    def ask_tags(self, chat_id: str) -> None:
        """Ask for the tags of the chat."""
        chat = self._listed(chat_id)
        if chat is None:
            return
        dialog = TagsDialog(chat.tags, list(self._tags()), self)
        dialog.chosen.connect(lambda tags: self._history.set_tags(chat_id, tags))
        self._open_dialog(dialog)

    def find_tag(self, tag: str) -> None:
        """Show the chats with this tag."""
        self.search.setText(search.tag_words(tag))
        self._search_timer.stop()
        self.refresh()

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

    def delete(self, chat_id: str) -> None:
        chat = self._listed(chat_id)
        if chat is None:
            return
        self._history.delete(chat_id)
        self.refresh()
        self.deleted.emit(chat_id)

        def undo() -> None:
            self._history.undelete(chat_id)
            self.refresh()
            self.chat_selected.emit(chat_id)

        self._offer_undo(tr("Deleted “{title}”", title=_short(chat.title)), undo)

    def undo(self) -> None:
        """Take back what the bar at the bottom tells of."""
        self._undo_timer.stop()
        self._undo_bar.setVisible(False)
        if self._undo is not None:
            undo, self._undo = self._undo, None
            undo()
            self.refresh()

    def export(self, chat_id: str, path: Path) -> None:
        """Write the chat in the format that the name of the file asks for."""
        from app.history.transfer.export_job import ExportJob  # few ever ask
        from app.history.transfer.formats import format_of
        from app.history.transfer.places import FilePlace

        chat = self._listed(chat_id)
        if chat is not None:
            job = ExportJob(self._history, [chat], format_of(path.name), FilePlace(path), self)
            job.ended.connect(lambda _, sentence: self._offer_undo(sentence, None))
            job.ended.connect(job.deleteLater)
            self._jobs.append(job)
            job.start()

    def export_many(self, chats: Sequence[ListedChat], title: str) -> None:
        """Ask how these are exported, in a dialog of that title, and do it."""
        from app.history.transfer.export_dialog import ExportDialog  # few ever ask

        self._open_dialog(ExportDialog(self._history, chats, title, self))

    def import_files(self, paths: Sequence[Path]) -> None:
        """Import the chats of these files, and show what comes of it."""
        from app.history.transfer.import_dialog import ImportDialog  # few ever ask

        self._open_dialog(ImportDialog(self._history, paths, self))

    def close_down(self) -> None:
        """Before the program ends: give up what goes on in dialogs and beside them."""
        for job in self._jobs:
            job.close_down()
        for dialog in self.findChildren(QDialog):
            dialog.reject()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _make_list(self, theme: Theme) -> ChatListView:
        view = ChatListView(self.model, theme, self)
        view.customContextMenuRequested.connect(self._menu)
        view.typed.connect(self.typed)
        view.clicked.connect(self._open)
        view.open_asked.connect(lambda: self._open(view.currentIndex()))
        view.delete_asked.connect(self._delete_chosen)
        view.fold_asked.connect(self.fold)
        view.tag_asked.connect(self.find_tag)
        view.dropped.connect(self.place)
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

    def _tags(self) -> Counter[str]:
        """The tags of all chats, the commonest first."""
        counted = Counter(tag for chat in self._history.listed() for tag in chat.tags)
        return Counter(dict(counted.most_common()))

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

    def _delete_chosen(self) -> None:
        index = self.list.currentIndex()
        if index.isValid() and (folder := self.model.row(index).folder) is not None:
            self.delete_folder(folder)
        else:
            self.delete(self._id(index))

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

    def _menu(self, at: QPoint) -> None:
        index = self.list.indexAt(at)
        row = self.model.row(index) if index.isValid() else None
        if row is not None and row.chat is not None:
            self._pop_up(self.chat_menu(row.chat), at, self.list.viewport())
        elif row is not None and row.folder is not None:
            self._pop_up(self.folder_menu(row.folder), at, self.list.viewport())
        elif row is None:
            self._pop_up(self.list_menu(), at, self.list.viewport())

    def _pop_up(self, menu: QMenu, at: QPoint, where: QWidget) -> None:
        menu.exec(where.mapToGlobal(at))
        menu.deleteLater()

    def chat_menu(self, chat: ListedChat) -> QMenu:
        """What can be done with a chat."""
        menu = QMenu(self)
        menu.addAction(f"{tr('Rename')}\tF2", lambda: self.rename(chat.id))
        menu.addAction(tr("Duplicate"), lambda: self.duplicate(chat.id))
        pinned = DropTarget("list", chat.folder) if chat.pinned else DropTarget("pinned")
        menu.addAction(tr("Unpin") if chat.pinned else tr("Pin"), lambda: self.place(chat.id, pinned))
        folders = menu.addMenu(tr("Move to folder"))
        for folder in self._history.folders():
            action = folders.addAction(menu_text(folder.name))
            named(action, checkable=True, checked=chat.folder == folder.id)
            action.triggered.connect(lambda _=False, key=folder.id: self.place(chat.id, DropTarget("list", key)))
        if chat.folder:
            folders.addAction(tr("No folder"), lambda: self.place(chat.id, DropTarget("list")))
        folders.addAction(tr("New folder…"), lambda: self.new_folder(chat.id))
        menu.addAction(tr("Tags…"), lambda: self.ask_tags(chat.id))
        menu.addAction(
            tr("Unarchive") if chat.archived else tr("Archive"), lambda: self.archive(chat.id, not chat.archived)
        )
        menu.addSeparator()
        menu.addAction(tr("Export…"), lambda: self._ask_export(chat.id))
        menu.addSeparator()
        menu.addAction(tr("Delete"), lambda: self.delete(chat.id))
        return menu

    def folder_menu(self, folder: Folder) -> QMenu:
        """What can be done with a folder."""
        menu = QMenu(self)
        menu.addAction(f"{tr('Rename')}\tF2", lambda: self._edit(self.model.index_of_folder(folder.id)))
        menu.addAction(tr("New folder…"), self.new_folder)
        menu.addAction(tr("Export…"), lambda: self._export_folder(folder))
        menu.addSeparator()
        menu.addAction(tr("Delete the folder, keep its chats"), lambda: self.delete_folder(folder))
        return menu

    def list_menu(self) -> QMenu:
        """What can be done with the list."""
        menu = QMenu(self)
        menu.addAction(tr("New folder…"), self.new_folder)
        tags = self._tags()
        if tags:
            shown = menu.addMenu(tr("Show chats tagged"))
            for tag, count in tags.most_common(30):
                shown.addAction(menu_text(tag, figure(count)), partial(self.find_tag, tag))
        menu.addSeparator()
        menu.addAction(tr("Import chats…"), self._ask_import)
        every = menu.addAction(tr("Export all chats…"), self._export_all)
        every.setEnabled(bool(self._history.listed()))
        return menu

    def _export_all(self) -> None:
        self.export_many(self._history.listed(), tr("Export all chats"))

    def _export_folder(self, folder: Folder) -> None:
        inside = [chat for chat in self._history.listed() if chat.folder == folder.id]
        self.export_many(inside, tr("Export the folder “{name}”", name=_short(folder.name)))

    def _ask_import(self) -> None:
        start, kinds = str(Path.home()), tr("Chats of Kvasir, OpenAI, Open WebUI, LM Studio (*.json *.zip)")
        paths, _ = QFileDialog.getOpenFileNames(self, tr("Import chats"), start, kinds)
        if paths:
            self.import_files([Path(path) for path in paths])

    def _ask_export(self, chat_id: str) -> None:
        chat = self._history.chat(chat_id)
        if chat is None:
            return
        formats = ";;".join(f"{title} (*{suffix})" for title, suffix in EXPORTED.items())
        start = str(Path.home() / file_name(chat))
        path, chosen = QFileDialog.getSaveFileName(self, tr("Export the chat"), start, formats)
        if not path:
            return
        suffix = next((suffix for suffix in EXPORTED.values() if suffix in chosen), ".md")
        if not path.casefold().endswith(tuple(EXPORTED.values())):
            path += suffix
        elif chosen and not path.casefold().endswith(suffix):  # the name was left, and another format chosen
            path = path[: path.rindex(".")] + suffix
        self.export(chat_id, Path(path))


def _short(title: str) -> str:
    return title if len(title) <= 40 else title[:39].rstrip() + "…"

"""The left side: a new chat, search, the list of chats with its folders, and undo for what was taken out of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QDialog, QFileDialog, QMenu, QWidget

from app.history.chat_list import DropTarget
from app.history.duplicate import duplicate
from app.history.export import file_name
from app.history.filing import FilingPanel, short
from app.history.records import Folder, ListedChat
from app.history.store import HistoryStore
from app.language import figure, tr
from app.theme.theme import Theme
from app.theme.widgets import menu_text, named

if TYPE_CHECKING:
    from app.history.transfer.export_job import ExportJob

EXPORTED = {"Markdown": ".md", "HTML": ".html", "PDF": ".pdf", tr("JSON, all branches"): ".json"}


class Sidebar(FilingPanel):
    """The list with its menus: chats are copied, deleted, exported and imported there."""

    deleted = Signal(str)
    """A chat was deleted (it may be the one on screen); undo brings it back."""
    new_chat_in = Signal(str)
    """The id of a folder in which the person wants to begin a chat."""
    documents_asked = Signal(str, list)
    """(the id of a folder whose documents the person wants to see, the files that are to become some of them)."""

    def __init__(self, history: HistoryStore, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(history, theme, parent)
        self._jobs: list[ExportJob] = []
        self.more.clicked.connect(lambda: self._pop_up(self.list_menu(), self.more.rect().bottomLeft(), self.more))
        self.list.customContextMenuRequested.connect(self._menu)
        self.list.delete_asked.connect(self._delete_chosen)
        self.list.filed.connect(self.documents_asked)

    def duplicate(self, chat_id: str) -> None:
        """Copy the chat with all its branches, and open the copy."""
        copy = duplicate(self._history, chat_id)
        if copy:
            self.search.clear()
            self._search_timer.stop()
            self._current = copy
            self.refresh()
            self.chat_selected.emit(copy)

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

        self._offer_undo(tr("Deleted “{title}”", title=short(chat.title)), undo)

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

    def _delete_chosen(self) -> None:
        index = self.list.currentIndex()
        if index.isValid() and (folder := self.model.row(index).folder) is not None:
            self.delete_folder(folder)
        else:
            self.delete(self._id(index))

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
        menu.addAction(tr("New chat in this folder"), lambda: self.new_chat_in.emit(folder.id))
        menu.addAction(tr("Documents…"), lambda: self.documents_asked.emit(folder.id, []))
        menu.addSeparator()
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
        self.export_many(inside, tr("Export the folder “{name}”", name=short(folder.name)))

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

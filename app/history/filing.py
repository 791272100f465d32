"""Folders, tags, pins and the archive of the list of chats."""

from __future__ import annotations

from collections import Counter

from PySide6.QtWidgets import QWidget

from app.history import search
from app.history.chat_list import DropTarget
from app.history.list_panel import ListPanel
from app.history.records import Folder, new_id
from app.history.store import HistoryStore
from app.history.tags import TagsDialog
from app.language import plural, tr
from app.theme.theme import Theme

NEW_FOLDER = tr("New folder")


class FilingPanel(ListPanel):
    """A list in which chats have their places: a folder, tags, among the pinned ones or in the archive."""

    def __init__(self, history: HistoryStore, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(history, theme, parent)
        self.list.tag_asked.connect(self.find_tag)
        self.list.dropped.connect(self.place)

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
        """Remove a folder; its chats stay, in none, and messages that were sent with its documents keep these."""
        inside = [chat.id for chat in self._history.listed() if chat.folder == folder.id]
        documents = self._history.folder_documents(folder.id)
        self._history.remove_folder(folder.id)
        self.refresh()

        def undo() -> None:
            with self._history.together():
                self._history.save_folder(folder)
                self._history.set_folder_documents(folder.id, documents)
                for chat_id in inside:
                    self._history.set_folder(chat_id, folder.id)

        deleted = tr("Deleted the folder “{name}”.", name=short(folder.name))
        kept = tr("Its chat is still in the list.") if len(inside) == 1 else tr("Its chats are still in the list.")
        gone = plural(
            "Its document is not used any more.", "Its {n:,} documents are not used any more.", len(documents)
        )
        parts = [deleted, *([kept] if inside else []), *([gone] if documents else [])]
        self._offer_undo(" ".join(parts), undo)

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
                tr("Archived “{title}”", title=short(chat.title)), lambda: self._history.set_archived(chat_id, False)
            )

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

    def _tags(self) -> Counter[str]:
        """The tags of all chats, the commonest first."""
        counted = Counter(tag for chat in self._history.listed() for tag in chat.tags)
        return Counter(dict(counted.most_common()))


def short(title: str) -> str:
    """A title for a sentence."""
    return title if len(title) <= 40 else title[:39].rstrip() + "…"

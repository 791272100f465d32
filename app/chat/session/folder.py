"""The folder of the chat on screen, and which of its documents the next question is asked with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from PySide6.QtCore import QObject, Signal

from app.chat.session.conversation import Conversation
from app.documents.records import MessageDocument
from app.history.records import Folder, FolderDocument
from app.history.store import HistoryStore


class ChatFolder(QObject):
    """``talk`` returns the chat on screen."""

    changed = Signal()
    """The folder, its documents, or those that the chat goes without are others."""

    def __init__(self, history: HistoryStore, talk: Callable[[], Conversation], parent: QObject) -> None:
        super().__init__(parent)
        self._history, self._talk = history, talk
        self.folder: Folder | None = None
        """The folder; None for none."""
        self.documents: tuple[FolderDocument, ...] = ()
        """All documents of the folder, in their order."""
        self._shown: tuple[object, ...] = ()
        history.changed.connect(self._on_changed)

    @property
    def used(self) -> list[FolderDocument]:
        """The documents that the next question is asked with."""
        left_out = self._talk().chat.left_out
        return [each for each in self.documents if each.id not in left_out]

    def parts(self, own: Sequence[MessageDocument]) -> tuple[MessageDocument, ...]:
        """The same as parts of a message, behind its ``own`` documents; one that is among these does not come twice."""
        have = {each.document.digest for each in own}
        return tuple(
            MessageDocument(each.document, folder=True) for each in self.used if each.document.digest not in have
        )

    def leave_out(self, documents: Collection[str]) -> None:
        """Have the chat on screen go without these, by their ids, from the next question on."""
        self._talk().set_left_out([each.id for each in self.documents if each.id in documents])
        self.refresh()

    def refresh(self) -> None:
        """Read the folder again."""
        talk, history = self._talk(), self._history
        self.folder = history.folder_of(talk.chat.id) if talk.saved else history.folder(talk.folder)
        self.documents = tuple(history.folder_documents(self.folder.id)) if self.folder is not None else ()
        shown = self.folder, self.documents, talk.chat.left_out, talk.saved
        if shown != self._shown:
            self._shown = shown
            self.changed.emit()

    def _on_changed(self, chat_id: str) -> None:
        if chat_id in ("", self._talk().chat.id):
            self.refresh()

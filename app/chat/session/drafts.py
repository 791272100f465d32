"""Drafts: text that was typed and not sent, kept for each chat in the history."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer

from app.chat.composer import Composer
from app.chat.session.session import ChatSession
from app.history.records import Draft
from app.history.store import HistoryStore

SAVE_MS = 500
"""The delay of a save after the first key since the last one, so that a kill of the window costs no more."""


class DraftTexts(QObject):
    """Text goes with its chat, "" being the chat that is not begun; a message that is being edited, with its branch."""

    def __init__(self, composer: Composer, session: ChatSession, history: HistoryStore, parent: QObject) -> None:
        super().__init__(parent)
        self._composer, self._session, self._history = composer, session, history
        self._chat = session.chat_id
        self._kept = Draft()
        self._unsaved: dict[str, Draft] = {}
        """Drafts of chats with what the history does not keep of them, until the program ends."""
        self._timer = QTimer(self, singleShot=True)
        self._timer.setObjectName("drafts-save")
        self._timer.timeout.connect(self.save)
        composer.text_changed.connect(self._on_text)
        session.opened.connect(self._switch)
        session.saved.connect(self._on_begun)
        self._show()

    def save(self) -> None:
        self._timer.stop()
        now = self._composer.draft
        if now != self._kept:
            self._kept = now
            self._history.set_draft(self._chat, now)

    def _switch(self) -> None:
        """Another chat is on screen: put away what the composer holds, and take out what was typed there."""
        self.save()
        self._unsaved[self._chat] = self._composer.draft
        self._chat = self._session.chat_id
        self._show()

    def _show(self) -> None:
        more, tree = self._unsaved.pop(self._chat, Draft()), self._session.talk.tree
        draft = self._history.draft(self._chat)
        edited, begins = (each if each in tree else "" for each in (draft.edited, more.begins))
        draft = draft._replace(edited=edited, pictures=more.pictures, documents=more.documents, begins=begins)
        self._kept = draft
        self._composer.show_draft(draft)

    def _on_begun(self, chat_id: str) -> None:
        """The chat that was not begun got its first message, and an id."""
        self.save()
        self._chat, self._kept = chat_id, Draft()

    def _on_text(self) -> None:
        if not self._composer.text:  # sent: forgotten as soon as it is in the file as a message, and not before
            self._timer.start(0)
        elif not self._timer.isActive():  # who types on is saved meanwhile
            self._timer.start(SAVE_MS)

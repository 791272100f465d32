"""Drafts: what was typed and not sent, with its pictures and documents, kept for each chat in the history."""

from __future__ import annotations

import os
from typing import Any

from PySide6.QtCore import QObject, QTimer

from app.chat.composer import Composer
from app.chat.session.session import ChatSession
from app.history.records import Attached, Draft
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
        self._kept_parts = _parts(Draft())
        self._left: dict[str, Draft] = {}
        """Drafts of chats that were left, some documents of which may still be read."""
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
        parts = _parts(now)
        if now != self._kept:
            self._history.set_draft(self._chat, now)
        if parts != self._kept_parts:
            self._history.set_draft_parts(self._chat, now)
        self._kept, self._kept_parts = now, parts

    def _switch(self) -> None:
        """Another chat is on screen: put away what the composer holds, and take out what was typed there."""
        self.save()
        self._left[self._chat] = self._composer.draft
        self._chat = self._session.chat_id
        self._show()

    def _show(self) -> None:
        left, tree = self._left.pop(self._chat, None), self._session.talk.tree
        draft = self._history.draft(self._chat)
        self._kept_parts = _parts(draft)
        if left is not None:  # with what is still being read, and what the history does not keep
            draft = draft._replace(pictures=left.pictures, documents=left.documents, begins=left.begins)
        edited, begins = (each if each in tree else "" for each in (draft.edited, draft.begins))
        draft = draft._replace(edited=edited, begins=begins)
        self._kept = draft
        self._composer.show_draft(draft)
        for each in draft.documents if left is None else ():
            self._look_for(each)

    def _look_for(self, attached: Attached) -> None:
        """A document of an earlier run of the program: one that was not read to its end is read now, and of one that
        was it is said if its file is gone."""
        if attached.document is None:
            self._composer.reader.resume(attached)
        elif attached.path and not os.path.exists(attached.path):
            attached.gone = True
            self._composer.documents.say_notes()

    def _on_begun(self, chat_id: str) -> None:
        """The chat that was not begun got its first message, and an id. What the composer holds was not sent: the
        message was written elsewhere, and that stays for a new chat."""
        self.save()
        unsent = self._composer.draft
        self._chat, self._kept, self._kept_parts = chat_id, Draft(), _parts(Draft())
        if unsent != Draft():
            self._left[""] = unsent
            self._composer.show_draft(Draft())

    def _on_text(self) -> None:
        if not self._composer.text:  # sent: forgotten as soon as it is in the file as a message, and not before
            self._timer.start(0)
        elif not self._timer.isActive():  # who types on is saved meanwhile
            self._timer.start(SAVE_MS)


def _parts(draft: Draft) -> tuple[Any, ...]:
    """What the history keeps of a draft's pictures and documents."""
    documents = ((each.name, each.path, each.pasted, each.document) for each in draft.documents)
    return draft.pictures, *documents

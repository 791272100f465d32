"""Chats that are being answered, and those that were answered while another one was on screen."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.chat.session.session import ChatSession
from app.history.records import StoredMessage
from app.history.store import HistoryStore


class Background(QObject):
    """``changed`` carries (the chats that are being answered, those whose answer nobody has seen yet).

    The history keeps the latter for the next start.
    """

    changed = Signal(object, object)

    def __init__(self, session: ChatSession, history: HistoryStore, parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._history = session, history
        self.unread = history.unread()
        session.answers.counted.connect(self.tell)
        session.answers.ended.connect(self._on_ended)
        session.opened.connect(self._on_opened)

    def _on_ended(self, message: StoredMessage) -> None:
        if message.chat != self._session.talk.chat.id:
            self.unread |= {message.chat}
            self._history.set_unread(message.chat, True)
            self.tell()

    def _on_opened(self) -> None:
        if self._session.chat_id in self.unread:
            self.unread -= {self._session.chat_id}
            self._history.set_unread(self._session.chat_id, False)
            self.tell()

    def tell(self) -> None:
        self.changed.emit(self._session.answers.chats, self.unread)

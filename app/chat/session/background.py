"""Which chats are being answered, and which were answered while another one was on screen."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.chat.session.session import ChatSession
from app.history.records import Message


class Background(QObject):
    """``changed`` carries (the chats that are being answered, those whose answer nobody has seen yet)."""

    changed = Signal(object, object)

    def __init__(self, session: ChatSession, parent: QObject) -> None:
        super().__init__(parent)
        self._session = session
        self.unread: frozenset[str] = frozenset()
        session.answers.counted.connect(self._tell)
        session.answers.ended.connect(self._on_ended)
        session.opened.connect(self._on_opened)

    def _on_ended(self, message: Message) -> None:
        if message.chat != self._session.talk.chat.id:
            self.unread |= {message.chat}
            self._tell()

    def _on_opened(self) -> None:
        if self._session.chat_id in self.unread:
            self.unread -= {self._session.chat_id}
            self._tell()

    def _tell(self) -> None:
        self.changed.emit(self._session.answers.chats, self.unread)

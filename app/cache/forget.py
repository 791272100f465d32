"""Tells the engine of every chat that was deleted, so that nothing of it stays on its disk."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.chat.session.answers import Answers
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from engine import protocol


class Forgetter(QObject):
    """A chat that is deleted while no engine runs is told at the next connection, if need be of the next start."""

    def __init__(self, link: EngineLink, history: HistoryStore, answers: Answers, parent: QObject) -> None:
        super().__init__(parent)
        self._link, self._answers = link, answers
        self.waiting = list(history.removed)
        """The ids of chats that the engine has not been told of."""
        link.state_changed.connect(self._on_state)
        self._tell()

    def forget(self, chat: str) -> None:
        """Answers of the chat stop first, or they would be kept again."""
        self._answers.stop_chat(chat)
        self.waiting.append(chat)
        self._tell()

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is LinkState.CONNECTED:
            self._tell()

    def _tell(self) -> None:
        if self._link.state is LinkState.CONNECTED:
            waiting, self.waiting = self.waiting, []
            for chat in waiting:
                self._link.send(protocol.ForgetChat(chat=chat))

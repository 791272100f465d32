"""Says when a conversation has filled the context, and offers to let the model see less of it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.chat import overflow
from app.chat.engine_news import EngineNews
from app.chat.notice import Notice
from app.chat.session import ChatSession
from app.history.records import Message
from engine import protocol
from engine.protocol import Overflow

_SWITCH = "overflow"
FROM_NOW = "From the next message on the model sees the beginning and the end of this conversation, not its middle."


class ContextOffer(QObject):
    """After an answer that the context's end stopped, and a question that did not fit. ``ready``: one can ask now."""

    taken = Signal(str)
    """The policy that the person accepted."""

    def __init__(
        self, session: ChatSession, news: EngineNews, notice: Notice, ready: Callable[[], bool], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._session, self._news, self._notice, self._ready = session, news, notice, ready
        self._said = ""
        session.ended.connect(self._on_ended)
        session.refused.connect(self._on_refused)
        session.opened.connect(self._on_opened)
        notice.acted.connect(self._on_notice)

    def _on_ended(self, message: Message) -> None:
        stats, usage = message.stats, message.stats.usage
        if stats.reason == "context":
            tokens = usage.generated_tokens if usage is not None else 0
            self._offer(stats.detail or overflow.full(tokens, stats.overflow), stats.overflow, bad=False)

    def _on_refused(self, error: protocol.Error) -> None:
        if error.code == "prompt_too_long":
            self._offer(error.message, self._session.talk.chat.overflow, bad=True)
        else:
            self._news.say(error.message, bad=True)

    def _offer(self, sentence: str, policy: Overflow, bad: bool) -> None:
        offered, self._said = policy == "stop", sentence
        self._news.say(sentence, bad, _SWITCH if offered else "", overflow.OFFER_TITLE if offered else "")

    def _on_opened(self) -> None:
        """The offer was for the chat that was on screen."""
        if self._said and self._notice.text == self._said:
            self._news.dismiss()
        self._said = ""

    def _on_notice(self, action: str) -> None:
        if action != _SWITCH:
            return
        self.taken.emit(overflow.OFFER)
        self._news.dismiss()
        talk = self._session.talk
        if talk.leaf and talk.tree.get(talk.leaf).role == "user" and self._ready():
            self._session.regenerate(talk.leaf)  # the question that did not fit
        else:
            self._news.say(FROM_NOW)

"""Says when a conversation has filled the context, and offers to let the model see less of it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from app.chat.context import overflow
from app.chat.news import News
from app.chat.session.session import ChatSession
from app.history.records import StoredMessage
from app.language import tr
from engine import protocol
from engine.protocol import Overflow

FROM_NOW = tr("From the next message on the model sees the beginning and the end of this conversation, not its middle.")


class ContextOffer(QObject):
    """Acts after an answer that the context's end stopped, or a question too long; says how else an answer ended badly.

    ``ready``: one can ask now.
    """

    def __init__(self, session: ChatSession, news: News, ready: Callable[[], bool], parent: QObject) -> None:
        super().__init__(parent)
        self._session, self._news, self._ready = session, news, ready
        self._said = ""
        session.ended.connect(self._on_ended)
        session.refused.connect(self._on_refused)
        session.opened.connect(self._on_opened)

    def _on_ended(self, message: StoredMessage) -> None:
        stats, usage = message.stats, message.stats.usage
        if stats.beside is not None and not stats.beside.chosen:
            return  # its column says it
        if stats.reason == "context":
            tokens = usage.generated_tokens if usage is not None else 0
            self._offer(stats.detail or overflow.full(tokens, stats.overflow), stats.overflow, bad=False)
        elif stats.detail:
            self._news.say(stats.detail, bad=stats.reason not in (*protocol.WHOLE, "cancelled"))

    def _on_refused(self, error: protocol.Error) -> None:
        if error.code == "prompt_too_long":
            self._offer(error.message, self._session.talk.chat.overflow, bad=True)
        else:
            self._news.complain(error.message)

    def _offer(self, sentence: str, policy: Overflow, bad: bool) -> None:
        self._said = sentence
        self._news.say(sentence, bad, overflow.OFFER_TITLE if policy == "stop" else "", self._accept)

    def _on_opened(self) -> None:
        """The offer was for the chat that was on screen."""
        self._news.forget(self._said)
        self._said = ""

    def _accept(self) -> None:
        self._session.set_overflow(overflow.OFFER)
        self._news.dismiss()
        talk = self._session.talk
        if talk.leaf and talk.tree.get(talk.leaf).role == "user" and self._ready():
            self._session.regenerate(talk.leaf)  # the question that did not fit
        else:
            self._news.say(FROM_NOW)

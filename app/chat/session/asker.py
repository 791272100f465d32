"""Asks the engine for answers in a chat, on screen or not: with which settings, and what of documents is sent."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, Signal

from app.chat.session.answers import Answers
from app.chat.session.conversation import Conversation
from app.chat.session.settling import Settling, first_undecided
from app.chat.session.tokens import DocumentTokens
from app.chat.thinking_switch import allowed
from app.documents.meaning import PassageEmbeddings
from app.history.records import AnswerStats, StoredMessage
from app.history.store import HistoryStore
from app.link.link import EngineLink
from engine.protocol import Thinking


class Asker(QObject):
    settled = Signal(object)
    """A message of which it is decided what of its documents is sent, as the history has it now."""

    def __init__(
        self,
        link: EngineLink,
        history: HistoryStore,
        answers: Answers,
        tokens: DocumentTokens,
        meaning: PassageEmbeddings,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._history, self._answers = link, history, answers
        self._tokens, self._meaning = tokens, meaning
        self._settled_last: Settling | None = None

    def ask(self, talk: Conversation, parent: str, like: AnswerStats, original: StoredMessage | None = None) -> None:
        """Begin an answer to ``parent`` with the settings of ``like``. ``original`` is the answer that it repeats
        exactly."""
        card, remote = self._link.card, like.remote
        if remote is None:
            name, thinking, adapter = card.name if card is not None else "", allowed(card, like.thinking), like.adapter
        else:  # the settings of a model here mean nothing there
            name, thinking, adapter = remote.model, Thinking(), ""
        with self._history.together():
            asked = msgspec.structs.replace(like, model=name, thinking=thinking, adapter=adapter)
            answer = talk.begin_answer(parent, asked)
            self._history.save_message(answer)
        settling, before = self._settling(talk, parent), talk.answer_before(answer.id)
        self._answers.begin(answer, lambda: talk.prompt(parent, like.system), before, original, settling)

    def go_on(self, talk: Conversation, message: StoredMessage) -> None:
        """Have the last answer of the shown branch go on where its text ends."""
        card, before = self._link.card, talk.answer_before(message.id)
        with self._history.together():
            name, thinking = card.name if card is not None else "", allowed(card, message.stats.thinking)
            answer = talk.continue_answer(message, name, thinking)
            self._history.save_message(answer)
        system, settling = message.stats.system, self._settling(talk, message.id)
        self._answers.go_on(message, answer, lambda: talk.prompt(message.id, system), before, settling)

    def _settling(self, talk: Conversation, leaf: str) -> Settling | None:
        """The choice of what is sent of documents that were never asked about; None where there are none."""
        if first_undecided(talk, leaf) is None:
            return None
        tools, before = self._answers.tools.get(talk.chat.servers), self._settled_last
        after = before if before is not None and not before.over and before.chat == talk.chat.id else None
        made = Settling(self._link, self._tokens, self._meaning, talk, leaf, tools, self, after)
        made.kept.connect(self.settled)
        self._settled_last = made
        return made

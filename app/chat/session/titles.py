"""Titles of chats by the model, asked for after the first answer of one, while nobody waits for anything."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QObject

from app.chat.session.conversation import Conversation, title_of
from app.chat.session.session import ChatSession
from app.history.records import StoredMessage, new_id
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from engine import protocol
from engine.protocol import ChatMessage, Sampling, Thinking
from engine.protocol.rounds import seen_by

log = logging.getLogger(__name__)

LEAST_PARAMETERS = 500_000_000
"""Parameters of a model that is asked for titles at least. Those that come with Kvasir have some millions and know its
manual alone; models that follow any instruction begin at about this size."""
MOST_TOKENS = 24
ASK = (
    "Write a title of two to six words for this conversation, "  # not shown
    "in its language. Answer with the title alone."
)
_LABEL = re.compile(r"^(?:title|titel|titre|título)\s*:\s*", re.IGNORECASE)
_ROUND = " \t\"'“”„«»`*_#.:"
"""Signs that models put round a title."""


class _Asked(NamedTuple):
    """A question for a title; ``fallback`` is the title that it may take the place of."""

    id: str
    chat: str
    fallback: str


class Titles(QObject):
    """One at a time, in the engine's least urgent service class. A question of the person ends it; a title that is not
    the first words of the chat any more is left alone."""

    def __init__(self, link: EngineLink, history: HistoryStore, session: ChatSession, parent: QObject) -> None:
        super().__init__(parent)
        self._link, self._history, self._session = link, history, session
        self.allowed: Callable[[], bool] = lambda: True
        """Returns True if titles are wanted and nothing is measured now."""
        self._wanted: list[StoredMessage] = []
        """First answers of chats without a title of their own, the oldest first."""
        self._asked: _Asked | None = None
        self._said: list[str] = []
        session.answers.ended.connect(self._on_ended)
        session.answers.counted.connect(self.settle)
        link.load_asked.connect(lambda _: self.stop())
        link.delta.connect(self._on_delta)
        link.finished.connect(self._on_finished)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(lambda *_: self._drop())

    @property
    def asking(self) -> bool:
        return self._asked is not None

    def settle(self) -> None:
        """What a title waits for may be over, or something that it would disturb has begun."""
        if self._session.answers.busy or not self.allowed():
            self.stop()
            return
        while self._asked is None and self._wanted:
            self._ask(self._wanted.pop(0))

    def stop(self) -> None:
        """Give up the title that is being written; the first words of the chat stay."""
        if self._asked is not None:
            self._link.send(protocol.Cancel(id=self._asked.id))
            self._drop()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _on_ended(self, message: StoredMessage) -> None:
        stats = message.stats
        whole = message.state == "complete" and stats.reason in ("stop", "length") and not message.calls
        if whole and stats.remote is None and not stats.edited and message.content.strip():
            self._wanted = [other for other in self._wanted if other.chat != message.chat] + [message]
        self.settle()

    def _ask(self, answer: StoredMessage) -> None:
        card, chat = self._link.card, self._history.chat(answer.chat)
        if card is None or chat is None or self._link.idle or self._link.state is not LinkState.CONNECTED:
            return
        if card.parameters < LEAST_PARAMETERS or card.thinking.kind == "always":
            return
        talk = Conversation(self._history, chat, self._history.messages(chat.id))
        path = talk.tree.path(answer.id)
        if len(path) != 2 or chat.title != (fallback := talk.first_title(path[0])):
            return
        self._asked, self._said = _Asked(f"title-{new_id()}", chat.id, fallback), []
        prompt = [*talk.prompt(answer.id), ChatMessage.of("user", ASK)]
        self._link.send(
            protocol.Generate(
                id=self._asked.id,
                prompt=seen_by(card, prompt),
                parent=answer.id,
                sampling=Sampling(temperature=0.0, max_tokens=MOST_TOKENS),
                thinking=Thinking(on=False if card.thinking.kind == "switchable" else None),
                adapter=answer.stats.adapter,
                service="batch",
            )
        )

    def _on_delta(self, delta: protocol.Delta) -> None:
        if self._asked is not None and delta.id == self._asked.id and delta.channel == "content":
            self._said.append(delta.text)

    def _on_finished(self, message: protocol.Finished) -> None:
        asked = self._asked
        if asked is None or message.id != asked.id:
            return
        title = title_in("".join(self._said))
        self._drop()
        chat = self._history.chat(asked.chat)
        if message.reason in ("stop", "length") and title and chat is not None and chat.title == asked.fallback:
            self._history.set_title(asked.chat, title)
        self.settle()

    def _on_failed(self, error: protocol.Error) -> None:
        """Nobody asked for it, so nobody is told: the first words stay."""
        if self._asked is not None and error.id == self._asked.id:
            log.info("no title for a chat: %s", error.message)
            self._drop()
            self.settle()

    def _drop(self) -> None:
        self._asked, self._said = None, []


def title_in(answer: str) -> str:
    """The title in what a model wrote: its first line without label, quotes and marks; "" for none."""
    line = next((line for line in answer.split("\n") if line.strip(_ROUND)), "").strip(_ROUND)
    line = _LABEL.sub("", line).strip(_ROUND)
    return title_of(line)

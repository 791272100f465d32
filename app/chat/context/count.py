"""Asks the engine, a moment after each change, how many tokens the next prompt would take, and how many are kept."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.composer import Composer
from app.chat.context.bar import ContextBar
from app.chat.context.documents import next_documents
from app.chat.session.session import ChatSession
from app.documents.plan import UNKNOWN_CONTEXT, estimated, estimated_prompt
from app.documents.records import Document
from app.history.records import StoredMessage
from app.link.link import EngineLink, LinkState
from engine import protocol

COUNT_MS = 300
GROW_MS = 250
_ID = "count-"


class ContextCounter(QObject):
    """Counts the conversation on screen with what stands in ``composer``, and shows that in ``bar``."""

    searched = Signal(list)
    """The Documents of which the next question will be sent passages, as they do not fit."""

    def __init__(
        self, link: EngineLink, session: ChatSession, composer: Composer, bar: ContextBar, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._link, self._session, self._composer, self._bar = link, session, composer, bar
        self._asked = 0
        self._tokens: int | None = None
        self._estimate = 0
        """About how many it takes of another server's model, which nobody counts."""
        self._kept: int | None = None
        """How many of them need not be read again; None: not known."""
        self._frame = QTimer(self, singleShot=True, interval=GROW_MS)
        self._frame.setObjectName("count-grow")
        self._frame.timeout.connect(self._show)
        self._timer = QTimer(self, singleShot=True, interval=COUNT_MS)
        self._timer.setObjectName("count-timer")
        self._timer.timeout.connect(self._ask)
        composer.text_changed.connect(self._ask_soon)
        session.opened.connect(self._on_opened)
        session.changed.connect(self._on_changed)
        session.settings_changed.connect(self._on_changed)
        session.folder.changed.connect(self._on_changed)
        session.folder.changed.connect(self._show)
        session.ended.connect(self._on_ended)
        for grown in (session.answers.grown, session.answers.waiting):
            grown.connect(self._on_grown)
        session.tokens.changed.connect(self._show)
        composer.documents.changed.connect(self._show)
        link.counted.connect(self._on_counted)
        link.loaded.connect(self._ask_soon)
        link.state_changed.connect(self._on_state)
        for signal in (link.welcomed, link.loaded, link.unloaded):
            signal.connect(self._show)

    def stop(self) -> None:
        self._timer.stop()
        self._frame.stop()

    def _know(self, tokens: int | None, estimate: int = 0) -> None:
        """The count from elsewhere (a finished answer's usage); None when it is not known any more."""
        self._asked += 1  # an answer still on its way is of an older prompt
        self._tokens, self._kept, self._estimate = tokens, None, estimate
        self._show()

    def _on_opened(self) -> None:
        self._know(None)
        self._on_changed()

    def _on_changed(self) -> None:
        self._bar.overflow = self._session.talk.chat.overflow
        self._on_grown()
        self._ask_soon()

    def _on_grown(self, *_: object) -> None:
        if self._session.streaming and not self._frame.isActive():
            self._frame.start()

    def _on_ended(self, message: StoredMessage) -> None:
        usage = message.stats.usage
        if (
            usage is not None
            and message.stats.remote is None
            and message.id == self._session.talk.leaf
            and not usage.thinking_tokens
        ):
            # Most templates leave earlier thinking out, so that only a count can tell what is left of it.
            self._know(usage.prompt_tokens + usage.generated_tokens)

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is LinkState.CONNECTED:
            self._ask_soon()

    def _ask_soon(self, *_: object) -> None:
        self._timer.start()

    def _ask(self) -> None:
        link = self._link
        if self._session.talk.chat.remote is not None:
            self._know(None, estimated_prompt(self._session.next_prompt(self._composer.draft)[0]))
            return
        if self._session.streaming or link.card is None or link.idle or link.state is not LinkState.CONNECTED:
            return
        prompt, thinking = self._session.next_prompt(self._composer.draft)
        if not prompt:
            self._know(0)
            return
        self._asked += 1
        count, tools = f"{_ID}{self._asked}", self._session.next_tools
        chat = self._session.talk.chat
        self._link.send(
            protocol.CountTokens(
                id=count, prompt=prompt, thinking=thinking, tools=tools, chat=chat.id, adapter=chat.adapter
            )
        )

    def _on_counted(self, message: protocol.Counted) -> None:
        if message.id == f"{_ID}{self._asked}" and not self._session.streaming:
            self._tokens, self._kept = message.tokens, message.kept
            self._show()

    def _show(self, *_: object) -> None:
        card = self._link.card if self._session.talk.chat.remote is None else None
        limit, tokens = card.context if card is not None else 0, self._tokens
        extra = self._show_documents(limit)
        if (growth := self._session.growth) is not None:
            prompt, written = growth
            tokens = (prompt or tokens or 0) + written
        elif tokens is not None:
            tokens += extra
        self._bar.show_kept(self._kept if growth is None else None)
        self._bar.show_tokens(tokens, limit, self._seen(tokens, limit) if tokens is not None else None)

    def _show_documents(self, context: int) -> int:
        """Say at each document that is to be sent how many tokens it has, and whether it fits; returns the tokens that
        what will be sent of them adds. ``context`` 0: nobody counts."""
        session, draft = self._session, self._composer.draft
        own, folder = [each.document for each in draft.documents], [each.document for each in session.folder.used]
        documents, far = [*own, *folder], session.talk.chat.remote is not None
        count: Callable[[Document], int | None] = estimated if far else session.tokens.of
        known = [count(each) if each is not None and (context or far) else None for each in documents]
        # Where earlier messages make room for what is new, they take none from it.
        base = (self._estimate if far else self._tokens or 0) if session.talk.chat.overflow == "stop" else 0
        front = {each.document.digest for each in session.stays_in_front(draft)}
        found = next_documents(
            UNKNOWN_CONTEXT if far else context, base, own, folder, known, front, not session.writes_answer(draft)
        )
        shown = [None] * len(documents) if far else found.counts  # an estimate is nothing to show
        self._composer.documents.show_counts(shown[: len(own)])
        self._composer.folder.show_counts(shown[len(own) :])
        self.searched.emit(found.searched)
        return found.tokens

    def _seen(self, tokens: int, limit: int) -> int:
        """After a part of the conversation was left out, what the model sees is what it saw for the last answer."""
        talk = self._session.talk
        if tokens <= limit or talk.chat.overflow == "stop":
            return tokens
        answer = talk.last("assistant")
        usage = answer.stats.usage if answer is not None and answer.stats.cut is not None else None
        return min(limit, usage.prompt_tokens + usage.generated_tokens) if usage is not None else limit

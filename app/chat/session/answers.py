"""The answers that are being written now, in any chat: text, tints, saving at the first text and each second, and how
they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.session.again import repeat
from app.chat.session.settling import Settling
from app.history.records import OmittedContext, StoredMessage, TextSpan
from app.history.store import HistoryStore
from app.language import tr
from app.link.calls import PendingCall
from app.link.link import EngineLink, LinkState
from engine import protocol
from engine.protocol.mcp import ListServers, McpServer
from engine.protocol.operations import LIST_SERVERS
from engine.protocol.rounds import config_of, seen_by

SAVE_MS = 1000
TOOLS_OF_NOW = tr("The tools that the first answer had were not kept: this one had those of now.")
_OWN: frozenset[protocol.Source] = frozenset(("target", "bonus"))
"""Sources of tokens that were not drafted."""


class PartialAnswer(NamedTuple):
    """An answer so far; ``thought_s`` is how long it has been thinking, or thought, in seconds."""

    text: str
    spans: list[TextSpan]
    thinking: str = ""
    thought_s: float = 0.0
    calls: tuple[protocol.ToolCall, ...] = ()


@dataclass
class _Answer:
    message: StoredMessage
    parts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    spans: list[TextSpan] = field(default_factory=list)
    dirty: bool = False
    prompt_tokens: int = 0
    tokens: int = 0
    """Number of tokens that came so far."""
    system: bool = False
    """True if the prompt began with a system prompt, which is no message of the branch."""
    original: StoredMessage | None = None
    """The answer that it repeats exactly."""
    before: StoredMessage | None = None
    """The answer as it was before this continuation of it."""
    thinking_since: float = 0.0
    thought_s: float = 0.0
    calls: protocol.CallCollector = field(default_factory=protocol.CallCollector)
    preparation: PendingCall[Any, Any] | Settling | None = None
    """What comes before the question for the answer: that for the tools, or the choice of passages."""
    notice: str = ""
    """Sentences on tools that it does not have."""

    @classmethod
    def continuing(cls, before: StoredMessage, message: StoredMessage) -> _Answer:
        """The answer ``before`` as ``message``, which grows behind its end."""
        spans = list(before.spans) or ([TextSpan("", len(before.content))] if before.content else [])
        parts, thoughts = ([text] if text else [] for text in (before.content, before.thinking))
        answer = cls(message, parts, thoughts, spans, before=before, thought_s=before.stats.thought_s)
        if not before.content:  # it goes on thinking
            answer.thinking_since = time.monotonic() - answer.thought_s
        return answer

    @property
    def begun(self) -> bool:
        return bool(self.parts or self.thoughts or self.calls.calls)

    def take(self, delta: protocol.Delta) -> None:
        self.dirty = True
        self.tokens += len(delta.tokens)
        if delta.channel == "thinking":
            self.thinking_since = self.thinking_since or time.monotonic()
            if delta.text:
                self.thoughts.append(delta.text)
            return
        if (delta.text or delta.calls) and not self.parts:
            self.thought_s = self._thought_s()
        if delta.channel == "tool":
            self.calls.take(delta)
            return
        if delta.text:
            self.parts.append(delta.text)
        known = 0
        for token in delta.tokens:
            self._span(origin(token.source, token.chars))
            known += token.chars
        self._span(TextSpan("", len(delta.text) - known))

    def note(self, **facts: object) -> None:
        """Keep these fields of the statistics, which come before the answer ends."""
        self.message = self.message._replace(stats=msgspec.structs.replace(self.message.stats, **facts))
        self.dirty = True

    def snapshot(self) -> PartialAnswer:
        return PartialAnswer(
            "".join(self.parts), self.spans, "".join(self.thoughts), self._thought_s(), tuple(self.calls.calls)
        )

    def record(self, **changes: Any) -> StoredMessage:
        message = self.message._replace(**changes) if changes else self.message
        stats = msgspec.structs.replace(message.stats, thought_s=self._thought_s() if self.thoughts else 0.0)
        content, thinking = "".join(self.parts), "".join(self.thoughts)
        parts = tuple(self.calls.calls)
        return message._replace(content=content, spans=tuple(self.spans), stats=stats, thinking=thinking, parts=parts)

    def _thought_s(self) -> float:
        if self.parts or self.calls.calls or not self.thinking_since:
            return self.thought_s
        return time.monotonic() - self.thinking_since

    def _span(self, span: TextSpan) -> None:
        if span.chars <= 0:
            return
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.tint, last.by) == (span.tint, span.by):
            self.spans[-1] = last._replace(chars=last.chars + span.chars)
        else:
            self.spans.append(span)


def origin(source: protocol.Source, chars: int) -> TextSpan:
    """The span of one token of ``chars`` characters."""
    if source in _OWN:
        return TextSpan("", chars)
    return TextSpan("corrected", chars) if source == "corrected" else TextSpan("accepted", chars, source)


class Answers(QObject):
    """A message's id is its request's id. Answers go on in the background when another chat is shown."""

    grown = Signal(str)
    """Text came for this message; ask :meth:`snapshot` when painting."""
    waiting = Signal(str, int, int)
    """(message id, prompt tokens read, prompt tokens in all)."""
    cut = Signal(object)
    """The running Message, of whose conversation the model does not see a part."""
    ended = Signal(object)
    """The finished or interrupted Message."""
    counted = Signal()
    """:attr:`chats` may be others now."""
    preparing = Signal(str, str)
    """(message id, work that comes before it is asked)."""
    refused = Signal(object, object)
    """(the Message, which stayed empty and is removed from the history, the engine's Error)."""
    not_continued = Signal(object)
    """The engine's Error: an answer, which has ended as it was before, cannot go on."""

    def __init__(self, link: EngineLink, history: HistoryStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._history = history
        self._running: dict[str, _Answer] = {}
        self._known: set[str] = set()
        self.tools: dict[tuple[str, ...], protocol.ToolConfig | None] = {}
        """What answers with the tools of these servers were given last."""
        self._save = QTimer(self, interval=SAVE_MS)
        self._save.setObjectName("answers-save")
        self._save.timeout.connect(self.save_all)
        link.delta.connect(self._on_delta)
        link.prefill.connect(self._on_prefill)
        link.context_cut.connect(self._on_cut)
        link.finished.connect(self._on_finished)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)
        link.unloaded.connect(self._on_unloaded)
        link.loaded.connect(lambda _: self._known.clear())

    def begin(
        self,
        message: StoredMessage,
        prompt: Callable[[], list[protocol.ChatMessage]],
        earlier: str,
        original: StoredMessage | None = None,
        settling: Settling | None = None,
    ) -> None:
        """Ask the engine for this empty message, which is saved; ``earlier`` is the id of the answer before it, or "".

        ``original`` is the answer that it repeats exactly: what came of that is said when it ends. ``settling`` comes
        before ``prompt`` is called.
        """
        self._start(_Answer(message, original=original), prompt, earlier, settling)

    def go_on(
        self,
        before: StoredMessage,
        message: StoredMessage,
        prompt: Callable[[], list[protocol.ChatMessage]],
        earlier: str,
        settling: Settling | None = None,
    ) -> None:
        """Have the answer ``before`` go on as ``message``, which is saved; ``prompt`` ends with its text."""
        earlier = message.id if message.id in self._known else earlier
        self._start(_Answer.continuing(before, message), prompt, earlier, settling)

    def _start(
        self,
        answer: _Answer,
        prompt: Callable[[], list[protocol.ChatMessage]],
        earlier: str,
        settling: Settling | None,
    ) -> None:
        message = answer.message
        self._running[message.id] = answer
        self._save.start()
        self.counted.emit()
        if settling is None:
            self._ask(answer, prompt(), earlier)
            return

        def go_on() -> None:
            answer.preparation = None
            self._ask(answer, prompt(), earlier)

        answer.preparation = settling
        settling.told.connect(lambda words: self.preparing.emit(message.id, words))
        settling.start(go_on)

    def _ask(self, answer: _Answer, prompt: list[protocol.ChatMessage], earlier: str) -> None:
        message, original = answer.message, answer.original
        answer.system = bool(prompt) and prompt[0].role == "system"
        parent = earlier if earlier in self._known else ""
        asked = message.stats

        def send(tools: protocol.ToolConfig | None) -> None:
            self._link.send(
                protocol.Generate(
                    id=message.id,
                    prompt=prompt if asked.remote is not None else seen_by(self._link.card, prompt),
                    parent=parent,
                    sampling=asked.sampling,
                    thinking=asked.thinking,
                    chat=message.chat,
                    overflow=asked.overflow,
                    adapter=asked.adapter,
                    remote=asked.remote,
                    tools=tools,
                    continues=answer.before is not None,
                )
            )

        def listed(servers: list[McpServer]) -> None:
            if self._running.get(message.id) is answer:
                answer.preparation = None
                tools, notice = config_of(servers, asked.servers)
                answer.notice = " ".join(filter(None, (answer.notice, notice)))
                answer.note(tools=self._history.save_tools(message.chat, tools))
                self.tools[tuple(asked.servers)] = tools
                send(tools)

        if not asked.servers:
            send(None)
            return
        if original is not None:
            try:
                tools = self._history.tools(message.chat, original.stats.tools)
            except LookupError:
                answer.notice = TOOLS_OF_NOW
            else:
                answer.note(tools=original.stats.tools)
                send(tools)
                return
        request = ListServers(servers=asked.servers)
        answer.preparation = self._link.call(
            LIST_SERVERS, request, listed, lambda error: self._interrupt(message.id, error)
        )

    def stop(self, message_id: str) -> None:
        answer = self._running.get(message_id)
        if answer is not None and answer.preparation is not None:
            self._interrupt(message_id, None)
        elif answer is not None:
            self._link.send(protocol.Cancel(id=message_id))

    def note(self, message_id: str, **facts: object) -> None:
        """Keep these fields of the statistics of a running answer. Raises KeyError for one that is not running."""
        self._running[message_id].note(**facts)

    def stop_chat(self, chat_id: str) -> None:
        """Every answer of a chat that is going away."""
        for message_id, answer in list(self._running.items()):
            if answer.message.chat == chat_id:
                self.stop(message_id)

    @property
    def busy(self) -> bool:
        """True if any answer, of any chat, is being written."""
        return bool(self._running)

    @property
    def chats(self) -> frozenset[str]:
        """The chats in which answers are being written."""
        return frozenset(answer.message.chat for answer in self._running.values())

    def running(self, message_id: str) -> bool:
        return message_id in self._running

    def snapshot(self, message_id: str) -> PartialAnswer:
        """The answer as far as it is written. Raises KeyError for an answer that is not running."""
        return self._running[message_id].snapshot()

    def context(self, message_id: str) -> tuple[int, int]:
        """The tokens of a running answer: those of its prompt, 0 until that is known, and those written so far."""
        answer = self._running[message_id]
        return answer.prompt_tokens, answer.tokens

    def current(self, message: StoredMessage) -> StoredMessage:
        """The message with what has been written of it up to now."""
        answer = self._running.get(message.id)
        return answer.record() if answer is not None else message

    def save_all(self) -> None:
        for answer in self._running.values():
            if answer.dirty:
                self._save_one(answer)

    def interrupt_all(self) -> None:
        """The engine is gone, or the program closes: keep what is written so far."""
        for message_id in list(self._running):
            self._interrupt(message_id, None)

    def _on_delta(self, delta: protocol.Delta) -> None:
        answer = self._running.get(delta.id)
        if answer is not None and delta.answer == 0:
            first = not answer.begun
            answer.take(delta)
            if first and answer.begun:
                self._save_one(answer)
            self.grown.emit(delta.id)

    def _on_prefill(self, message: protocol.Prefill) -> None:
        answer = self._running.get(message.id)
        if answer is not None:
            if message.diverged is not None and answer.message.stats.diverged is None:
                answer.note(diverged=message.diverged, divergence=message.divergence)
            answer.prompt_tokens = message.total
            self.waiting.emit(message.id, message.done, message.total)

    def _on_cut(self, message: protocol.ContextCut) -> None:
        answer = self._running.get(message.id)
        if answer is None:
            return
        head = int(answer.system)
        answer.note(
            cut=OmittedContext(
                policy=message.policy,
                first=max(0, message.first - head),
                last=max(0, message.last - head),
                tokens=message.tokens,
                sinks=message.sinks,
                window=message.window,
            )
        )
        self.cut.emit(answer.record())

    def _on_finished(self, message: protocol.Finished) -> None:
        answer = self._pop(message.id)
        if answer is None:
            return
        asked = answer.message.stats
        drawn = message.usage.seed if asked.remote is None else asked.sampling.seed  # others do not tell theirs
        stats = msgspec.structs.replace(
            asked,
            sampling=msgspec.structs.replace(asked.sampling, seed=drawn),
            reason=message.reason,
            detail=" ".join(filter(None, (answer.notice, message.detail))),
            usage=message.usage,
            timings=message.timings,
        )
        self._known.add(message.id)
        if answer.before is not None and not answer.tokens and message.reason in ("cancelled", "error"):
            self._end(answer.before)
            if message.detail:
                self.not_continued.emit(protocol.Error(code=message.reason, message=message.detail, id=message.id))
            return
        ended = answer.record(state="interrupted" if message.reason == "error" else "complete", stats=stats)
        if answer.original is not None and message.reason != "error":
            ended = ended._replace(stats=msgspec.structs.replace(ended.stats, repeat=repeat(answer.original, ended)))
        self._end(ended)

    def _on_failed(self, error: protocol.Error) -> None:
        if error.id in self._running:
            self._interrupt(error.id, error)

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED:
            self._known.clear()
            self.interrupt_all()

    def _on_unloaded(self, _: protocol.Unloaded) -> None:
        self._known.clear()

    def _interrupt(self, message_id: str, error: protocol.Error | None) -> None:
        answer = self._pop(message_id)
        if answer is None:
            return
        if answer.before is not None and not answer.tokens:
            self._end(answer.before)
            if error is not None:
                self.not_continued.emit(error)
            return
        if error is not None and not answer.begun and answer.message.stats.beside is None:
            self._history.remove_message(message_id)
            self.refused.emit(answer.message, error)
            return
        stats = msgspec.structs.replace(answer.message.stats, detail=error.message if error is not None else "")
        self._end(answer.record(state="interrupted", stats=stats))

    def _save_one(self, answer: _Answer) -> None:
        answer.dirty = False
        self._history.save_message(answer.record())

    def _end(self, message: StoredMessage) -> None:
        self._history.save_message(message)
        self._history.flush()  # what is shown as whole is in the file
        self.ended.emit(message)

    def _pop(self, message_id: str) -> _Answer | None:
        answer = self._running.pop(message_id, None)
        if answer is not None and answer.preparation is not None:
            answer.preparation.cancel()
        if not self._running:
            self._save.stop()
        if answer is not None:
            self.counted.emit()
        return answer

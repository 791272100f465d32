"""The answers that are being written now, in any chat: text, tints, saving every second, and how they end."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from app.history.records import AnswerStats, Message, Span, Tint
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from engine import protocol

SAVE_MS = 1000
_TINTS: dict[protocol.Source, Tint] = {"draft": "accepted", "ngram": "accepted", "corrected": "corrected"}


@dataclass
class _Answer:
    message: Message
    parts: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    dirty: bool = False

    def take(self, delta: protocol.Delta) -> None:
        self.parts.append(delta.text)
        self.dirty = True
        known = 0
        for token in delta.tokens:
            self._span(_TINTS.get(token.source, ""), token.chars)
            known += token.chars
        self._span("", len(delta.text) - known)

    def snapshot(self) -> tuple[str, list[Span]]:
        return "".join(self.parts), self.spans

    def record(self, **changes: object) -> Message:
        return self.message._replace(content="".join(self.parts), spans=tuple(self.spans), **changes)

    def _span(self, tint: Tint, chars: int) -> None:
        if chars <= 0:
            return
        if self.spans and self.spans[-1].tint == tint:
            self.spans[-1] = Span(tint, self.spans[-1].chars + chars)
        else:
            self.spans.append(Span(tint, chars))


class Answers(QObject):
    """A message's id is its request's id. Answers go on in the background when another chat is shown."""

    grown = Signal(str)
    """Text came for this message; ask :meth:`snapshot` when painting."""
    waiting = Signal(str, int, int)
    """(message id, prompt tokens read, prompt tokens in all)."""
    ended = Signal(object)
    """The finished or interrupted Message."""
    refused = Signal(object, str)
    """(the Message, which stayed empty and is removed from the history, the engine's sentence)."""

    def __init__(self, link: EngineLink, history: HistoryStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._history = history
        self._running: dict[str, _Answer] = {}
        self._known: set[str] = set()
        self._save = QTimer(self, interval=SAVE_MS)
        self._save.setObjectName("answers-save")
        self._save.timeout.connect(self.save_all)
        link.delta.connect(self._on_delta)
        link.prefill.connect(self._on_prefill)
        link.finished.connect(self._on_finished)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)
        link.unloaded.connect(self._on_unloaded)
        link.loaded.connect(lambda _: self._known.clear())

    def begin(self, message: Message, prompt: list[protocol.ChatMessage], earlier: str) -> None:
        """Ask the engine for this (empty, streaming) message; ``earlier`` is the id of the answer before it, or ""."""
        self._running[message.id] = _Answer(message)
        self._history.save_message(message)
        self._save.start()
        parent = earlier if earlier in self._known else ""
        self._link.send(protocol.Generate(id=message.id, prompt=prompt, parent=parent, sampling=message.stats.sampling))

    def stop(self, message_id: str) -> None:
        if message_id in self._running:
            self._link.send(protocol.Cancel(id=message_id))

    def running(self, message_id: str) -> bool:
        return message_id in self._running

    def snapshot(self, message_id: str) -> tuple[str, list[Span]]:
        """Text and spans so far. Raises KeyError for an answer that is not running."""
        return self._running[message_id].snapshot()

    def current(self, message: Message) -> Message:
        """The message with what has been written of it up to now."""
        answer = self._running.get(message.id)
        return answer.record() if answer is not None else message

    def save_all(self) -> None:
        for answer in self._running.values():
            if answer.dirty:
                answer.dirty = False
                self._history.save_message(answer.record())

    def interrupt_all(self) -> None:
        """The engine is gone, or the program closes: keep what there is."""
        for message_id in list(self._running):
            self._interrupt(message_id, "")

    def _on_delta(self, delta: protocol.Delta) -> None:
        answer = self._running.get(delta.id)
        if answer is not None and delta.answer == 0 and delta.channel == "content":
            answer.take(delta)
            self.grown.emit(delta.id)

    def _on_prefill(self, message: protocol.Prefill) -> None:
        if message.id in self._running:
            self.waiting.emit(message.id, message.done, message.total)

    def _on_finished(self, message: protocol.Finished) -> None:
        answer = self._pop(message.id)
        if answer is None:
            return
        asked = answer.message.stats
        sampling = msgspec.structs.replace(asked.sampling, seed=message.usage.seed)
        stats = AnswerStats(
            sampling=sampling,
            model=asked.model,
            reason=message.reason,
            detail=message.detail,
            usage=message.usage,
            timings=message.timings,
        )
        self._known.add(message.id)
        self._end(answer.record(state="interrupted" if message.reason == "error" else "complete", stats=stats))

    def _on_failed(self, error: protocol.Error) -> None:
        if error.id in self._running:
            self._interrupt(error.id, error.message)

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state in (LinkState.RESTARTING, LinkState.DEAD):
            self._known.clear()
            self.interrupt_all()

    def _on_unloaded(self, _: protocol.Unloaded) -> None:
        self._known.clear()

    def _interrupt(self, message_id: str, sentence: str) -> None:
        answer = self._pop(message_id)
        if answer is None:
            return
        if sentence and not answer.parts:
            self._history.remove_message(message_id)
            self.refused.emit(answer.message, sentence)
            return
        stats = msgspec.structs.replace(answer.message.stats, detail=sentence)
        self._end(answer.record(state="interrupted", stats=stats))

    def _end(self, message: Message) -> None:
        self._history.save_message(message)
        self.ended.emit(message)

    def _pop(self, message_id: str) -> _Answer | None:
        answer = self._running.pop(message_id, None)
        if not self._running:
            self._save.stop()
        return answer

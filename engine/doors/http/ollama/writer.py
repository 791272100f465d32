"""Answers in the two shapes of Ollama's interface, a line of JSON for each part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import msgspec

from engine.doors.http.errors import refusal_of
from engine.doors.http.ollama.types import (
    AnswerFigures,
    ChatOut,
    GenerateIn,
    GenerateOut,
    OllamaAnswer,
    OllamaCall,
    OllamaChat,
    OllamaFunction,
)
from engine.doors.http.service import told
from engine.protocol import CallCollector, Delta, Finished, Message, ToolCall
from engine.services.answers.refused import Refused
from engine.services.answers.stream import Stream


class AnswerPart(Protocol):
    """Part of an answer made of its text, its thinking, whether it is the last, and whole calls of tools."""

    def __call__(
        self, text: str, thinking: str, done: bool, calls: Sequence[ToolCall] = (), /
    ) -> ChatOut | GenerateOut: ...


def part_of(wanted: OllamaChat | GenerateIn) -> AnswerPart:
    """The shape of the parts of an answer to this request."""

    def part(text: str, thinking: str, done: bool, calls: Sequence[ToolCall] = ()) -> ChatOut | GenerateOut:
        if isinstance(wanted, OllamaChat):
            called = [_call(call, number) for number, call in enumerate(calls)] or None
            return ChatOut(wanted.model, now(), OllamaAnswer("assistant", text, thinking, called), done)
        return GenerateOut(wanted.model, now(), text, thinking, done)

    return part


async def lines(stream: Stream, part: AnswerPart, loaded_in: float) -> AsyncIterator[bytes]:
    """The parts of an answer while it is written; an error is the last line. ``loaded_in``: seconds of the load."""
    calls = CallCollector()

    def write(message: Message) -> Iterator[bytes]:
        match message:
            case Delta(channel="tool"):
                calls.take(message)
            case Delta(text=text, channel=channel) if text:
                thinks = channel == "thinking"
                yield _line(part("" if thinks else text, text if thinks else "", False))
            case Finished():
                if calls.calls:
                    yield _line(part("", "", False, calls.calls))
                yield _line(part("", "", True), figures(message, loaded_in))

    try:
        # Lines that are empty say nothing, and keep what lies between awake.
        async for line in told(stream, write, lambda: [b"\n"]):
            yield line
    except Refused as refused:
        yield msgspec.json.encode({"error": refusal_of(refused).message}) + b"\n"


async def whole(stream: Stream, part: AnswerPart, loaded_in: float) -> bytes:
    """The whole answer. Raises :class:`Refused`."""
    texts: dict[str, list[str]] = {"content": [], "thinking": [], "tool": []}
    end, calls = AnswerFigures(), CallCollector()
    async for message in stream.messages():
        match message:
            case Delta(text=text, channel=channel):
                texts[channel].append(text)
                calls.take(message)
            case Finished():
                end = figures(message, loaded_in)
    return _line(part("".join(texts["content"]), "".join(texts["thinking"]), True, calls.calls), end)


def _call(call: ToolCall, index: int) -> OllamaCall:
    """A call with its arguments as an object; as the text that they are where they are none."""
    try:
        given: dict[str, Any] | str = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        given = call.arguments
    return OllamaCall(OllamaFunction(call.name, given, index), call.id)


def figures(end: Finished, loaded_in: float) -> AnswerFigures:
    """Counts and nanoseconds of an answer."""
    reason: Literal["stop", "length"] = "stop" if end.reason == "stop" else "length"
    usage, timings = end.usage, end.timings
    return AnswerFigures(
        done_reason=reason,
        total_duration=_nanoseconds(timings.total_ms + 1e3 * loaded_in),
        load_duration=_nanoseconds(1e3 * loaded_in),
        prompt_eval_count=usage.prompt_tokens,
        prompt_eval_duration=_nanoseconds(timings.ttft_ms - timings.queued_ms),
        eval_count=usage.generated_tokens,
        eval_duration=_nanoseconds(timings.total_ms - timings.ttft_ms),
    )


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _nanoseconds(milliseconds: float) -> int:
    return max(0, round(1e6 * milliseconds))


def _line(body: ChatOut | GenerateOut, end: AnswerFigures = AnswerFigures()) -> bytes:
    return msgspec.json.encode({**msgspec.to_builtins(body), **msgspec.to_builtins(end)}) + b"\n"

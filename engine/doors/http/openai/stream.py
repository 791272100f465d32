"""Answers over HTTP, as server-sent events or whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from engine.doors.http.errors import refusal_of
from engine.doors.http.openai.answers import Completion, CompletionDetails, UsageDetails, UsageOut
from engine.doors.http.openai.types import StreamOptions
from engine.doors.http.openai.writers import Writer
from engine.doors.http.service import told
from engine.doors.http.timings import AnswerPace
from engine.doors.security import error_body
from engine.protocol import Delta, Finished, Message, Prefill
from engine.services.answers.refused import Refused
from engine.services.answers.stream import Stream

KEEP_ALIVE = b": keep-alive\n\n"


async def events(stream: Stream, writer: Writer, options: StreamOptions, pace: AnswerPace) -> AsyncIterator[bytes]:
    """An error is the last event: neither an end of the answer nor [DONE] follows."""
    finished: list[Finished] = []
    written = 0

    def usage() -> UsageOut | None:
        always = options.include_usage and options.continuous_usage_stats
        return _usage(stream.prompt_tokens, written) if always else None

    def timed(chunk: Completion | None) -> Iterator[bytes]:
        if chunk is not None:
            chunk.timings = pace.timings()
            yield _event(chunk)

    def write(message: Message) -> Iterator[bytes]:
        nonlocal written
        if isinstance(message, Prefill):
            for progress in pace.progress(message):
                yield from timed(writer.progress_chunk(progress))
        if not isinstance(message, Delta | Finished):
            return
        pace.take(message)
        if (opening := writer.opening_chunk(message.answer, usage())) is not None:
            yield _event(opening)
        if isinstance(message, Delta):
            written += len(message.tokens)
            yield from timed(writer.chunk(message, usage()))
        else:
            finished.append(message)
            yield from timed(writer.last_chunk(message, usage()))

    try:
        async for event in told(stream, write, lambda: [KEEP_ALIVE]):
            yield event
    except Refused as refused:
        yield _event(error_body(refusal_of(refused)))
        return
    if options.include_usage:
        for event in timed(writer.usage_chunk(usage_of(finished, stream.answers))):
            yield event
    yield b"data: [DONE]\n\n"


async def whole(stream: Stream, writer: Writer, pace: AnswerPace) -> Completion:
    """The whole answer. Raises :class:`Refused`."""
    finished: list[Finished] = []
    async for message in stream.messages():
        match message:
            case Delta():
                writer.add(message)
            case Finished():
                finished.append(message)
                pace.take(message)
    ends = sorted(finished, key=lambda end: end.answer)
    done = writer.whole(ends, usage_of(finished, stream.answers))
    done.timings = pace.timings()
    return done


def usage_of(finished: Sequence[Finished], answers: int) -> UsageOut:
    """Each prompt counts once, the ``answers`` to it add up. All but the first begin with the first one's pages."""
    prompt: dict[int, int] = {}
    cached: dict[int, int] = {}
    for end in finished:
        number, usage = end.answer // answers, end.usage
        prompt[number] = max(prompt.get(number, 0), usage.prompt_tokens)
        cached[number] = min(cached.get(number, usage.cached_tokens), usage.cached_tokens)
    generated = sum(end.usage.generated_tokens for end in finished)
    thinking = sum(end.usage.thinking_tokens for end in finished)
    return _usage(sum(prompt.values()), generated, sum(cached.values()), thinking)


def _usage(prompt: int, generated: int, cached: int = 0, thinking: int = 0) -> UsageOut:
    return UsageOut(prompt, generated, prompt + generated, UsageDetails(cached), CompletionDetails(thinking))


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"

"""An answer of a server elsewhere, streamed as if it were written here."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec

from engine.protocol import Delta, Finished, FinishReason, Generate, Timings, ToolCallDelta, Usage
from engine.services.operations import Context, Emit, OperationFailed
from engine.services.remote.asking import RemotePlace, asked, error_words, finished, said, start
from engine.services.remote.servers import place_of
from engine.services.remote.wire import Chunk, DeltaPart, FunctionPart, UsagePart, body

if TYPE_CHECKING:
    import httpx2

MOST_LINE, MOST_BYTES = 1 << 22, 1 << 28
"""Bytes of an event of the stream, and of the stream."""
_REASONS: dict[str, FinishReason] = {"length": "length"}


def answer(context: Context, request: Generate, emit: Emit) -> Finished:
    """Parts of the answer go to ``emit`` as :class:`Delta`. A stop closes the connection, which ends the work there.

    Raises :class:`OperationFailed`, FetchFailed and :class:`engine.base.stopping.Stopped`.
    """
    assert request.remote is not None
    return finished(_answer(place_of(request.remote.server), request, request.remote.model, emit))


async def _answer(place: RemotePlace, request: Generate, model: str, emit: Callable[[Delta], object]) -> Finished:
    told = _Told(request.id)
    async with asked(place, "/chat/completions", body(request, model)) as response:
        async for chunk in _chunks(place, response):
            for delta in told.take(chunk):
                emit(delta)
    if not told.reason and not told.done:
        raise OperationFailed(f"{place.name} ended the answer in the middle. Try again.")
    return told.end()


class _Told:
    """What a server has told of an answer, and when as seen from here."""

    def __init__(self, id: str) -> None:
        self.reason = ""
        self.done = False
        self._id, self._usage = id, UsagePart()
        self._began = self._first = self._last = time.monotonic()
        self._some = False

    def take(self, chunk: Chunk | None) -> list[Delta]:
        """The next parts of the answer; None stands for the mark of its end."""
        if chunk is None:
            self.done = True
            return []
        self._usage = chunk.usage or self._usage
        made = []
        for choice in (each for each in chunk.choices if each.index == 0):
            self.reason = choice.finish_reason or self.reason
            made += self._deltas(choice.delta or DeltaPart())
        if made:
            self._last = time.monotonic()
            self._first, self._some = (self._first if self._some else self._last), True
        return made

    def _deltas(self, part: DeltaPart) -> list[Delta]:
        made = []
        if thought := part.reasoning_content or part.reasoning:
            made.append(Delta(id=self._id, text=thought, channel="thinking"))
        if part.content:
            made.append(Delta(id=self._id, text=part.content))
        calls = [
            ToolCallDelta(
                index=call.index,
                id=call.id or "",
                name=function.name or "",
                arguments=function.arguments or "",
            )
            for call in part.tool_calls or ()
            for function in (call.function or FunctionPart(),)
        ]
        return [*made, Delta(id=self._id, text="", channel="tool", calls=calls)] if calls else made

    def end(self) -> Finished:
        """The server's counts (0 where it tells none), and times as they were here, with the network in them."""
        counted, tokens = self._usage, self._usage.completion_tokens or 0
        read, written = counted.prompt_tokens_details, counted.completion_tokens_details
        cached = read.cached_tokens if read is not None else None
        seconds = self._last - self._first
        usage = Usage(
            prompt_tokens=counted.prompt_tokens,
            cached_tokens=min(counted.prompt_tokens, cached or 0),
            generated_tokens=tokens,
            seed=0,
            thinking_tokens=(written.reasoning_tokens if written is not None else 0) or 0,
            cached_told=cached is not None,
        )
        timings = Timings(
            queued_ms=0,
            ttft_ms=1000 * (self._first - self._began),
            total_ms=1000 * (time.monotonic() - self._began),
            tokens_per_second=(tokens - 1) / seconds if tokens > 1 and seconds > 0 else 0.0,
            tokens_per_step=0,
            steps=0,
        )
        reason = _REASONS.get(self.reason, "stop")
        detail = "The server's filter ended the answer." if self.reason == "content_filter" else ""
        return Finished(id=self._id, reason=reason, usage=usage, timings=timings, detail=detail)


async def _chunks(place: RemotePlace, response: httpx2.Response) -> AsyncIterator[Chunk | None]:
    """The events of a stream, then None where the server marked its end. Raises :class:`OperationFailed`."""
    if "event-stream" not in response.headers.get("Content-Type", ""):
        words = place.words(said(await start(response)))
        raise OperationFailed(f"{place.name} does not stream its answer, but says: {words}. Ask another server.")
    async for line in _lines(place, response):
        if not line.startswith(b"data:"):
            continue  # a comment that keeps the connection open, or a field that this API does not use
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            yield None
            return
        if data:
            yield _chunk(place, data)


def _chunk(place: RemotePlace, data: bytes) -> Chunk:
    try:
        chunk = msgspec.json.decode(data, type=Chunk)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        words = place.words(data.decode(errors="replace"))
        raise OperationFailed(f"{place.name} sent what is no part of an answer: {words}. Ask another server.") from None
    if chunk.error or chunk.object == "error":
        words = place.words(error_words({"error": chunk.error, "message": chunk.message}) or str(chunk.error))
        raise OperationFailed(f"{place.name} could not go on: {words}. Try again later.")
    return chunk


async def _lines(place: RemotePlace, response: httpx2.Response) -> AsyncIterator[bytes]:
    """Lines of the stream, which LF or CR LF ends (HTML standard, section 9.2; servers of this API send no lone CR)."""
    rest, size = bytearray(), 0
    async for part in response.aiter_bytes():
        size += len(part)
        rest += part
        if b"\n" in part:
            *lines, rest = rest.split(b"\n")
            for line in lines:
                yield bytes(line)
        if len(rest) > MOST_LINE or size > MOST_BYTES:
            raise OperationFailed(f"{place.name} sends without an end. The connection was closed; ask another server.")
    if rest:
        yield bytes(rest)

"""One request of an HTTP client while the engine answers it: its events, or its whole answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.core.commands import AddRequest
from engine.core.events import RequestEvent
from engine.protocol import Delta, Error, Finished, Message, Sampling
from engine.server.answering import request_message
from engine.server.hub import EngineHub
from engine.server.openai.errors import cut_off, refusal_of
from engine.server.openai.types import CompletionDetails, UsageDetails, UsageOut
from engine.server.openai.writers import Writer
from engine.server.pictures import PromptTokens
from engine.server.refused import Refused
from engine.server.residency import Use
from engine.server.security import error_body
from engine.server.session.outbox import Outbox

_T = TypeVar("_T")


class Stream:
    """A request to the engine as an iterator of its messages; whoever leaves it cancels what is still to come.

    Raises :class:`Refused` where the engine refuses the request, or an answer ends without being whole.
    """

    def __init__(
        self,
        hub: EngineHub,
        prompt: PromptTokens,
        sampling: Sampling,
        answers: int,
        continues: bool,
        window: int | None = None,
        heard: Callable[[RequestEvent], None] | None = None,
        adapter: str = "",
    ) -> None:
        self._hub, self._left, self._heard = hub, answers, heard
        self._outbox = Outbox()
        self._first: Message | None = None
        self._name = hub.name_for("")
        shown = prompt.pictures
        request = AddRequest(
            self._name, prompt.ids, sampling, answers, {}, continues, window, adapter=adapter, pictures=shown
        )
        hub.add(request, self._on_event)

    async def begin(self) -> None:
        """Wait for the first message, which is the engine's refusal if it refuses."""
        self._first = await self._next()

    def leave(self) -> None:
        if self._left > 0:
            self._left = 0
            self._hub.cancel(self._name)

    def fail(self, code: str, message: str) -> None:
        """End it for a reason of the server."""
        if self._left > 0:
            self._outbox.put(Error(code=code, message=message))

    def _on_event(self, event: RequestEvent) -> None:
        if self._heard is not None:
            self._heard(event)
        self._outbox.put(request_message(event, ""))
        self._left -= isinstance(event, Finished)
        if isinstance(event, Error):
            self._left = 0

    async def __aiter__(self) -> AsyncIterator[Message]:
        while self._first is not None or self._left > 0 or len(self._outbox):
            message, self._first = self._first or await self._next(), None
            yield message

    async def _next(self) -> Message:
        message = await self._outbox.take()
        if isinstance(message, Error):
            raise Refused(message.code, message.message)
        if isinstance(message, Finished) and (refused := cut_off(message)) is not None:
            raise refused
        return message


class EventResponse(StreamingResponse):
    """An answer as server-sent events, while it is written; at the end of it the ``use`` ends."""

    def __init__(self, stream: Stream, writer: Writer, with_usage: bool, headers: dict[str, str], use: Use) -> None:
        super().__init__(_events(stream, writer, with_usage), media_type="text/event-stream", headers=headers)
        self._stream, self._use = stream, use

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.leave()
            self._use.leave()


async def _events(stream: Stream, writer: Writer, with_usage: bool) -> AsyncIterator[bytes]:
    """An error is the last event: neither an end of the answer nor [DONE] follows."""
    finished: list[Finished] = []
    try:
        async for message in stream:
            match message:
                case Delta():
                    yield _event(writer.chunk(message))
                case Finished():
                    finished.append(message)
                    yield _event(writer.last_chunk(message))
    except Refused as refused:
        yield _event(error_body(refusal_of(refused)))
        return
    if with_usage:
        yield _event(writer.usage_chunk(usage_of(finished)))
    yield b"data: [DONE]\n\n"


async def whole(stream: Stream, writer: Writer) -> bytes:
    """The whole answer. Raises :class:`Refused`."""
    finished: list[Finished] = []
    async for message in stream:
        match message:
            case Delta():
                writer.add(message)
            case Finished():
                finished.append(message)
    return msgspec.json.encode(writer.whole(sorted(finished, key=lambda end: end.answer), usage_of(finished)))


async def while_there(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of ``work``, which ends when the client goes away. Raises ClientDisconnect then."""
    gone = asyncio.create_task(_disconnected(request))
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([gone, task], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        for one in (gone, task):
            one.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def usage_of(finished: Sequence[Finished]) -> UsageOut:
    """The prompt counts once, the answers of one request add up. All but the first begin with the first one's pages."""
    prompt = max((end.usage.prompt_tokens for end in finished), default=0)
    cached = min((end.usage.cached_tokens for end in finished), default=0)
    generated = sum(end.usage.generated_tokens for end in finished)
    thinking = CompletionDetails(sum(end.usage.thinking_tokens for end in finished))
    return UsageOut(prompt, generated, prompt + generated, UsageDetails(cached), thinking)


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"

"""HTTP in OpenAI's shapes: /v1/models, /v1/chat/completions and /v1/completions, streamed or whole."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from engine.core.events import ErrorEvent, FinishedEvent
from engine.protocol import ContextCut, Delta, Error, Finished, Message, Sampling, Thinking
from engine.server.answering import NO_MODEL, Asked, Refused, request_message
from engine.server.hub import EngineHub, RequestEvent
from engine.server.openai_turns import Conversations
from engine.server.openai_types import (
    ChatIn,
    CompletionDetails,
    CompletionIn,
    ModelList,
    ModelOut,
    UsageDetails,
    UsageOut,
    _RequestIn,
)
from engine.server.openai_writers import ChatWriter, TextWriter, Writer
from engine.server.outbox import Outbox
from engine.server.overflow import TooLong, window_of
from engine.server.security import MAX_BODY, Refusal, bearer, error_response, token_matches
from engine.text.template import PromptError

log = logging.getLogger(__name__)

CUT_HEADER = "x-kvasir-context-cut"
"""Says in a response what of the conversation the model does not see."""

_STATUS = {"no_model": 503, "model_not_loaded": 404, "internal": 500, "memory": 503, "error": 500, "wrong_token": 401}


class OpenAIRoutes:
    """The routes, all behind the token."""

    def __init__(self, hub: EngineHub, token: str) -> None:
        self._hub, self._token = hub, token
        self._conversations = Conversations()

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        if (refusal := self._stranger(request)) is not None:
            return refusal
        loaded = self._hub.loaded
        models = [ModelOut(id=loaded.card.name)] if loaded is not None else []
        return _json(ModelList(data=models))

    async def chat(self, request: Request) -> Response:
        return await self._serve(request, ChatIn)

    async def complete(self, request: Request) -> Response:
        return await self._serve(request, CompletionIn)

    def _stranger(self, request: Request) -> Response | None:
        if token_matches(bearer(request.headers.get("authorization", "")), self._token):
            return None
        text = "The token is missing or wrong. Use the one in the token file as API key."
        return error_response(Refusal(401, "wrong_token", text))

    async def _serve(self, request: Request, kind: type[ChatIn] | type[CompletionIn]) -> Response:
        if (refusal := self._stranger(request)) is not None:
            return refusal
        try:
            wanted = msgspec.json.decode(await _body(request), type=kind)
            return await self._answer(request, wanted)
        except (Refused, PromptError, TooLong) as error:
            code = getattr(error, "code", "bad_prompt")
            return error_response(Refusal(_STATUS.get(code, 400), code, str(error)))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            text = str(error) if type(error) is ValueError else f"The request was not understood: {error}."
            return error_response(Refusal(400, "bad_request", text))
        except ClientDisconnect:
            return Response(status_code=499)

    async def _answer(self, request: Request, wanted: ChatIn | CompletionIn) -> Response:
        loaded = self._hub.loaded
        if loaded is None or loaded.tokenizer is None:
            raise Refused("no_model", NO_MODEL)
        name = loaded.card.name
        if wanted.model not in ("", name, loaded.path):
            text = f"The model {wanted.model!r} is not loaded, but {name} is. Ask for that one."
            raise Refused("model_not_loaded", text)
        prompt = wanted.prompt() if isinstance(wanted, ChatIn) else wanted.text_or_ids()
        thinking = wanted.thinking() if isinstance(wanted, ChatIn) else Thinking()
        plain = not isinstance(wanted, ChatIn)
        answers = wanted.n if wanted.n is not None else 1
        sampling = wanted.sampling()
        if isinstance(prompt, list) and (ids := [item for item in prompt if isinstance(item, int)]):
            window = window_of(loaded.card.context) if wanted.overflow == "window" else None
            stream = _Stream(self._hub, ids, sampling, answers, plain, window)
            left_out = None
        else:
            asked = Asked(prompt, thinking, wanted.overflow, sampling.max_tokens)  # type: ignore[arg-type]
            found = await self._conversations.prepared(self._hub, asked)
            ids, window, left_out = found.prompt.ids, found.prompt.window, found.prompt.context_cut("")
            stream = _Stream(self._hub, ids, sampling, answers, plain, window, found.listener)
        headers = {CUT_HEADER: _cut(left_out)} if left_out is not None else {}
        head = f"{'cmpl' if plain else 'chatcmpl'}-{secrets.token_hex(12)}", int(time.time()), name
        writer: Writer = (TextWriter if plain else ChatWriter)(*head, loaded.tokenizer)
        if wanted.stream:
            return StreamingResponse(_events(stream, writer, wanted), media_type="text/event-stream", headers=headers)
        response = await _whole(request, stream, writer)
        response.headers.update(headers)
        return response


def _cut(told: ContextCut) -> str:
    """What of the conversation the model does not see, for a header."""
    if told.policy == "window":
        return f"window; sinks={told.sinks}; window={told.window}; tokens={told.tokens}"
    return f"drop_middle; first={told.first}; last={told.last}; tokens={told.tokens}"


class _Stream:
    """One request to the engine as an iterator of its messages; leaving it early cancels the request."""

    def __init__(
        self,
        hub: EngineHub,
        ids: list[int],
        sampling: Sampling,
        answers: int,
        continues: bool,
        window: int | None = None,
        heard: Callable[[RequestEvent], None] = lambda event: None,
    ) -> None:
        self._hub, self._left, self._heard = hub, answers, heard
        self._outbox = Outbox()
        self._name = hub.add(ids, self._on_event, sampling, answers, None, continues, window)

    def _on_event(self, event: RequestEvent) -> None:
        self._heard(event)
        self._outbox.put(request_message(event, ""))
        self._left -= isinstance(event, FinishedEvent)
        if isinstance(event, ErrorEvent):
            self._left = 0

    async def __aiter__(self) -> AsyncIterator[Message]:
        try:
            while self._left > 0 or len(self._outbox):
                yield await self._outbox.take()
        finally:
            if self._left > 0:
                self._hub.cancel(self._name)


async def _events(stream: _Stream, writer: Writer, wanted: _RequestIn) -> AsyncIterator[bytes]:
    """Server-sent events. An error inside the stream is an event of its own."""
    with_usage = wanted.stream_options is not None and wanted.stream_options.include_usage
    finished: list[Finished] = []
    async with contextlib.aclosing(aiter(stream)) as messages:  # type: ignore[type-var]
        async for message in messages:
            match message:
                case Delta():
                    yield _event(writer.chunk(message))
                case Finished():
                    finished.append(message)
                    if message.reason == "error":
                        yield _event(_error_body("error", message.detail))
                    yield _event(writer.last_chunk(message))
                case Error():
                    yield _event(_error_body(message.code, message.message))
    if with_usage and finished:
        yield _event(writer.usage_chunk(usage_of(finished)))
    yield b"data: [DONE]\n\n"


async def _whole(request: Request, stream: _Stream, writer: Writer) -> Response:
    """The whole answer at once; a client that goes away cancels it."""
    gone = asyncio.create_task(_disconnected(request))
    work = asyncio.create_task(_collect(stream, writer))
    try:
        await asyncio.wait([gone, work], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return await work
    finally:
        for task in (gone, work):
            task.cancel()
        await asyncio.gather(gone, work, return_exceptions=True)


async def _collect(stream: _Stream, writer: Writer) -> Response:
    finished: list[Finished] = []
    async with contextlib.aclosing(aiter(stream)) as messages:  # type: ignore[type-var]
        async for message in messages:
            match message:
                case Delta():
                    writer.add(message)
                case Finished(reason="error"):
                    raise Refused("error", message.detail or "The answer failed inside the engine. Try again.")
                case Finished():
                    finished.append(message)
                case Error():
                    raise Refused(message.code, message.message)
    return _json(writer.whole(sorted(finished, key=lambda end: end.answer), usage_of(finished)))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    """The body, refused as soon as it is too large (its length may not have been declared)."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise Refused("too_large", f"The request is larger than {MAX_BODY >> 20} MiB. Send less.")
        parts.append(part)
    return b"".join(parts)


def usage_of(finished: Sequence[Finished]) -> UsageOut:
    """The prompt counts once, the answers of one request add up. All but the first begin with the first one's pages."""
    prompt = max((end.usage.prompt_tokens for end in finished), default=0)
    cached = min((end.usage.cached_tokens for end in finished), default=0)
    generated = sum(end.usage.generated_tokens for end in finished)
    thinking = CompletionDetails(sum(end.usage.thinking_tokens for end in finished))
    return UsageOut(prompt, generated, prompt + generated, UsageDetails(cached), thinking)


def _error_body(code: str, message: str) -> dict[str, dict[str, str]]:
    return {"error": {"message": message, "type": "server_error", "code": code}}


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")

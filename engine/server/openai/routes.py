"""HTTP in OpenAI's shapes: /v1/models, /v1/chat/completions and /v1/completions, streamed or whole."""

from __future__ import annotations

import asyncio
import secrets
import time
import weakref
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from engine.core.admission import NO_MODEL
from engine.loading.adapters import adapters_of
from engine.protocol import ContextCut, Thinking
from engine.server.answering import Asked
from engine.server.hub import EngineHub
from engine.server.openai.errors import FAILURES, refusal_of
from engine.server.openai.fields import decoded
from engine.server.openai.remote import fetch_pictures
from engine.server.openai.stream import EventResponse, Stream, while_there, whole
from engine.server.openai.turns import Conversations
from engine.server.openai.types import ChatIn, CompletionIn, ModelList, ModelOut
from engine.server.openai.writers import ChatWriter, TextWriter, Writer
from engine.server.overflow import too_long, window_of
from engine.server.pictures import PromptTokens
from engine.server.refused import Refused
from engine.server.residency import Residency, Use
from engine.server.security import MAX_BODY, error_response, refuse_stranger

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

BODY_SECONDS = 30.0
"""How long the next part of a request's body may take."""
CUT_HEADER = "x-kvasir-context-cut"
"""Says in a response what of the conversation the model does not see."""
STOPPED = "The engine was stopped before the answer was whole. Start it again."


class OpenAIRoutes:
    """The routes, all behind the token."""

    def __init__(self, hub: EngineHub, residency: Residency, token: str, fetches: bool = False) -> None:
        """``fetches``: pictures are fetched from the web addresses that requests name."""
        self._hub, self._residency, self._token, self._fetches = hub, residency, token, fetches
        self._conversations = Conversations()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._stopping = False

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
        ]

    def stop(self) -> None:
        """The server stops: answers that are not whole yet end with an error that says so, and no other begins."""
        self._stopping = True
        self._residency.stop(Refused("stopping", STOPPED))
        for stream in list(self._streams):
            stream.fail("stopping", STOPPED)

    async def models(self, request: Request) -> Response:
        if (refusal := refuse_stranger(request.headers, self._token)) is not None:
            return refusal
        return _json(ModelList(data=await self._models()))

    async def model(self, request: Request) -> Response:
        if not request.path_params["name"]:
            return await self.models(request)
        if (refusal := refuse_stranger(request.headers, self._token)) is not None:
            return refusal
        try:
            name = request.path_params["name"]
            if (waits := next((model for model in await self._models() if model.id == name), None)) is not None:
                return _json(waits)
            return _json(ModelOut(id=self._loaded(name).card.name))
        except Refused as error:
            return error_response(refusal_of(error))

    async def _models(self) -> list[ModelOut]:
        """Those that are loaded, then those that a request may have loaded."""
        loaded = self._hub.loaded
        names = [] if loaded is None else [loaded.card.name, *_adapters(loaded)]
        others = [name for name in await self._residency.loadable() if name not in names]
        return [ModelOut(id=name) for name in names] + [ModelOut(id=name, state="not-loaded") for name in others]

    async def chat(self, request: Request) -> Response:
        return await self._serve(request, ChatIn, "messages")

    async def complete(self, request: Request) -> Response:
        return await self._serve(request, CompletionIn, "prompt")

    async def _serve(self, request: Request, kind: type[ChatIn] | type[CompletionIn], prompt: str) -> Response:
        if (refusal := refuse_stranger(request.headers, self._token)) is not None:
            return refusal
        response, use = Response(status_code=499), self._residency.use()
        try:
            response = await self._answer(request, decoded(await _body(request), kind), use)
        except FAILURES as error:
            response = error_response(refusal_of(error, prompt, kind.__struct_fields__))
        except ClientDisconnect:
            pass
        finally:
            if not isinstance(response, EventResponse):
                use.leave()
        return response

    def _loaded(self, name: str) -> LoadedModel:
        """The model that is loaded. Raises :class:`Refused` for another name than its own and its adapters'."""
        loaded = self._hub.loaded
        if loaded is None or loaded.tokenizer is None:
            raise Refused("no_model", NO_MODEL)
        if name not in ("", loaded.card.name, loaded.path, *_adapters(loaded)):
            text = (
                f"The model {name!r} is not loaded, but {loaded.card.name} is. Ask for that one, or start the server "
                "with --load-on-demand."
            )
            if adapters := _adapters(loaded):
                known = ", ".join([loaded.card.name, *adapters])
                text = f"Neither the model nor an adapter is called {name!r}. Ask for one of these: {known}."
            raise Refused("model_not_found", text)
        return loaded

    async def _answer(self, request: Request, wanted: ChatIn | CompletionIn, use: Use) -> Response:
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._loaded(wanted.model)
        wanted.check(loaded.card.vocabulary)
        adapter = _adapter(loaded, wanted.model)
        stream, headers = await while_there(request, self._begun(wanted, loaded.card.context, adapter))
        try:
            await while_there(request, stream.begin())
            writer = _writer(wanted, loaded)
            if wanted.stream:
                with_usage = wanted.stream_options is not None and wanted.stream_options.include_usage
                return EventResponse(stream, writer, with_usage, headers, use)
            body = await while_there(request, whole(stream, writer))
            return Response(body, media_type="application/json", headers=headers)
        except BaseException:
            stream.leave()
            raise

    async def _begun(self, wanted: ChatIn | CompletionIn, context: int, adapter: str) -> tuple[Stream, dict[str, str]]:
        """The request as the engine has it, and what a header says of it. Raises :class:`Refused`."""
        chat = isinstance(wanted, ChatIn)
        if self._fetches and isinstance(wanted, ChatIn):
            await fetch_pictures(wanted)
        prompt = wanted.prompt() if isinstance(wanted, ChatIn) else wanted.text_or_ids()
        sampling, overflow, told = wanted.sampling(), wanted.overflow or "stop", None
        if isinstance(prompt, list) and isinstance(prompt[0], int):
            tokens = PromptTokens(prompt)
            window, heard = _window(len(prompt), overflow == "window", context), None
        else:
            thinking = wanted.thinking() if isinstance(wanted, ChatIn) else Thinking()
            asked = Asked(prompt, thinking, overflow, sampling.max_tokens)
            found, heard = await self._conversations.prepared(self._hub, asked)
            tokens, window, told = found.tokens, found.window, found.context_cut("")
        if self._stopping:
            raise Refused("stopping", STOPPED)
        stream = Stream(self._hub, tokens, sampling, wanted.n or 1, not chat, window, heard, adapter)
        self._streams.add(stream)
        return stream, {CUT_HEADER: _cut(told)} if told is not None else {}


def _window(tokens: int, slides: bool, context: int) -> int | None:
    """The window that slides over a prompt of ``tokens`` tokens, if one does. Raises :class:`Refused`."""
    if not slides and tokens >= context:
        raise too_long(tokens, context, False)
    return window_of(context) if slides else None


def _writer(wanted: ChatIn | CompletionIn, loaded: LoadedModel) -> Writer:
    assert loaded.tokenizer is not None
    kind, prefix = (ChatWriter, "chatcmpl") if isinstance(wanted, ChatIn) else (TextWriter, "cmpl")
    name = _adapter(loaded, wanted.model) or loaded.card.name
    return kind(f"{prefix}-{secrets.token_hex(12)}", int(time.time()), name, loaded.tokenizer)


def _adapters(loaded: LoadedModel) -> list[str]:
    return [adapter.name for adapter in adapters_of(loaded)]


def _adapter(loaded: LoadedModel, name: str) -> str:
    """The adapter that a model's name asks for; "" where it is the model's own."""
    return name if name in _adapters(loaded) else ""


def _cut(told: ContextCut) -> str:
    """What of the conversation the model does not see, for a header."""
    if told.policy == "window":
        return f"window; sinks={told.sinks}; window={told.window}; tokens={told.tokens}"
    return f"drop_middle; first={told.first}; last={told.last}; tokens={told.tokens}"


async def _body(request: Request) -> bytes:
    """The body, refused as soon as it is too large (its length may not have been declared) or stays away."""
    parts: list[bytes] = []
    size = 0
    stream = request.stream()
    try:
        while (part := await asyncio.wait_for(anext(stream, None), BODY_SECONDS)) is not None:
            size += len(part)
            if size > MAX_BODY:
                raise Refused("too_large", f"The request is larger than {MAX_BODY >> 20} MiB. Send less.")
            parts.append(part)
    except TimeoutError as error:
        raise Refused("body_timeout", f"No more of the request came for {BODY_SECONDS:g} seconds.") from error
    return b"".join(parts)


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")

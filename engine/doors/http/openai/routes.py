"""HTTP in OpenAI's shapes: /v1/models, /v1/chat/completions and /v1/completions, streamed or whole."""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.http.openai.body import read_body
from engine.doors.http.openai.errors import FAILURES, refusal_of
from engine.doors.http.openai.fields import decoded
from engine.doors.http.openai.remote import fetch_pictures
from engine.doors.http.openai.stream import KEEP_ALIVE_SECONDS, EventResponse, while_there, whole
from engine.doors.http.openai.turns import Conversations
from engine.doors.http.openai.types import ChatIn, CompletionIn, Ids, ModelList, ModelOut, StreamOptions
from engine.doors.http.openai.writers import ChatWriter, Echo, TextWriter, Writer
from engine.doors.security import error_response, refuse_stranger
from engine.loading.adapters import adapters_of
from engine.loop.admission import NO_MODEL
from engine.protocol import ChatMessage, ContextCut
from engine.services.answers.overflow import too_long, window_of
from engine.services.answers.refused import Refused, shortened
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.hub import EngineHub
from engine.services.residency import Lease, Residency
from engine.text.detokenise import detokeniser
from engine.text.prompt import PromptForm

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

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
        """Routes with a slash at the end or none, below /v1 or not: clients differ in what they add to an address."""
        return [
            route
            for base in ("/v1", "")
            for route in (
                Route(f"{base}/models", self.models),
                Route(f"{base}/models/{{name:path}}", self.model),
                *_posted(f"{base}/chat/completions", self.chat),
                *_posted(f"{base}/completions", self.complete),
            )
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
            name = request.path_params["name"].removesuffix("/")
            if (waits := next((model for model in await self._models() if model.id == name), None)) is not None:
                return _json(waits)
            return _json(_described(self._loaded(name)))
        except Refused as error:
            return error_response(refusal_of(error))

    async def _models(self) -> list[ModelOut]:
        """List the models that are loaded, then those that a request may have loaded."""
        loaded = self._hub.loaded
        there = (
            [] if loaded is None else [_described(loaded), *(_described(loaded, name) for name in _adapters(loaded))]
        )
        names = {model.id for model in there}
        others = [name for name in await self._residency.loadable() if name not in names]
        return there + [ModelOut(id=name, state="not-loaded") for name in others]

    async def chat(self, request: Request) -> Response:
        return await self._serve(request, ChatIn, "messages")

    async def complete(self, request: Request) -> Response:
        return await self._serve(request, CompletionIn, "prompt")

    async def _serve(self, request: Request, kind: type[ChatIn] | type[CompletionIn], prompt: str) -> Response:
        if (refusal := refuse_stranger(request.headers, self._token)) is not None:
            return refusal
        response, use = Response(status_code=499), self._residency.use()
        try:
            response = await self._answer(request, decoded(await read_body(request), kind), use)
        except FAILURES as error:
            response = error_response(refusal_of(error, prompt, kind.__struct_fields__))
            if isinstance(error, Refused) and error.code == "body_timeout":
                response.headers["connection"] = "close"  # else the rest of the body would be waited for
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
                f"The model {shortened(name)!r} is not loaded, but {loaded.card.name} is. Ask for that one, or start "
                "the server with --load-on-demand."
            )
            if adapters := _adapters(loaded):
                known = ", ".join([loaded.card.name, *adapters])
                text = f"Neither the model nor an adapter is called {shortened(name)!r}. Ask for one of these: {known}."
            raise Refused("model_not_found", text)
        return loaded

    async def _answer(self, request: Request, wanted: ChatIn | CompletionIn, use: Lease) -> Response:
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._loaded(wanted.model)
        wanted.check(loaded.card.vocabulary)
        stream, echoes, headers = await while_there(request, self._begun(wanted, loaded))
        try:
            await while_there(request, stream.begin(KEEP_ALIVE_SECONDS if wanted.stream else None))
            told = stream.told if wanted.sampling().logprobs is not None else [None] * len(echoes)
            writer = _writer(wanted, loaded, [Echo(*echo, known) for echo, known in zip(echoes, told, strict=True)])
            if wanted.prompt_logprobs is not None:
                writer.tell_prompts(stream.told, wanted.prompt_logprobs)
            if wanted.stream:
                return EventResponse(stream, writer, wanted.stream_options or StreamOptions(), headers, use)
            body = await while_there(request, whole(stream, writer))
            return Response(body, media_type="application/json", headers=headers)
        except BaseException:
            stream.leave()
            raise

    async def _begun(
        self, wanted: ChatIn | CompletionIn, loaded: LoadedModel
    ) -> tuple[Stream, list[tuple[str, Sequence[int]]], dict[str, str]]:
        """The request as the engine has it, the texts and ids of its prompts, and what a header says of them. Raises
        :class:`Refused`."""
        if self._fetches and isinstance(wanted, ChatIn):
            await fetch_pictures(wanted)
        headers: dict[str, str] = {}
        texts: list[tuple[str, Sequence[int]]] = []
        prompts: list[PromptRequest] = []
        for given in [wanted.prompt()] if isinstance(wanted, ChatIn) else wanted.prompts():
            prompt, told = await self._prompt(wanted, given, loaded)
            prompts.append(prompt)
            ids = prompt.command.prompt_ids
            texts.append((given if isinstance(given, str) else _text(loaded, ids), ids) if wanted.echoes else ("", ()))
            if told is not None:
                headers[CUT_HEADER] = _cut(told)
        if self._stopping:
            raise Refused("stopping", STOPPED)
        stream = Stream(self._hub, prompts)
        self._streams.add(stream)
        return stream, texts, headers

    async def _prompt(
        self, wanted: ChatIn | CompletionIn, given: list[ChatMessage] | str | Ids, loaded: LoadedModel
    ) -> tuple[PromptRequest, ContextCut | None]:
        """Build the request for one prompt, and what of it the model does not see. Raises :class:`Refused`."""
        context, sampling, slides = loaded.card.context, wanted.sampling(), wanted.overflow == "window"
        scored = (sampling.logprobs if wanted.echoes else None, wanted.prompt_logprobs)
        asked = AnswerRequest(
            "" if isinstance(given, Ids) else given,
            sampling,
            overflow=wanted.overflow or "stop",
            n=wanted.n or 1,
            adapter=_adapter(loaded, wanted.model),
            prompt_logprobs=max((each for each in scored if each is not None), default=None),
        )
        if isinstance(given, Ids):
            return PromptRequest(asked.command(PromptTokens(given), _window(len(given), slides, context))), None
        if isinstance(wanted, ChatIn):
            opens = wanted.add_generation_prompt is not False
            form = PromptForm(wanted.prefills(), opens, wanted.variables())
            asked = asked._replace(thinking=wanted.wanted_thinking(), form=form)
        found, heard = await self._conversations.prepared(self._hub, asked)
        _window(len(found.ids), slides, context)
        return PromptRequest(asked.command(found.tokens, found.window), heard), found.context_cut("")


def _posted(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> list[Route]:
    return [Route(end, endpoint, methods=["POST"]) for end in (path, f"{path}/")]


def _window(tokens: int, slides: bool, context: int) -> int | None:
    """The window that slides over a prompt of ``tokens`` tokens, if one does. Raises :class:`Refused`."""
    if not slides and tokens >= context:
        raise too_long(tokens, context, False)
    return window_of(context) if slides else None


def _writer(wanted: ChatIn | CompletionIn, loaded: LoadedModel, echoes: Sequence[Echo]) -> Writer:
    assert loaded.tokenizer is not None
    number, now = secrets.token_hex(12), int(time.time())
    name = _adapter(loaded, wanted.model) or loaded.card.name
    if isinstance(wanted, ChatIn):
        return ChatWriter(f"chatcmpl-{number}", now, name, loaded.tokenizer, wanted.tells_thinking)
    shown = echoes if wanted.echoes else ()
    return TextWriter(f"cmpl-{number}", now, name, loaded.tokenizer, shown, wanted.n or 1, wanted.logprobs or 0)


def _text(loaded: LoadedModel, ids: Sequence[int]) -> str:
    """The text of a prompt that came as ids."""
    assert loaded.tokenizer is not None
    stream = detokeniser(loaded.tokenizer, ())
    return "".join(map(stream.push, ids))


def _described(loaded: LoadedModel, adapter: str = "") -> ModelOut:
    """Description that clients get of the loaded model, or of an adapter of it."""
    card = loaded.card
    sees = [] if loaded.album is None else ["vision"]
    thinks = [] if card.thinking.kind == "none" else ["thinking"]
    return ModelOut(
        id=adapter or card.name,
        created=_made(loaded.path),
        root=card.name,
        parent=card.name if adapter else None,
        max_model_len=card.context,
        context_length=card.context,
        capabilities=["completion", *sees, *thinks],
        meta={"n_ctx": card.context, "n_vocab": card.vocabulary, "n_params": card.parameters},
    )


def _made(path: str) -> int:
    """Time at which a model came to this machine (its path's mtime), in seconds since 1970; 0 if that is not known."""
    try:
        return int(Path(path).stat().st_mtime)
    except (OSError, ValueError):
        return 0


def _adapters(loaded: LoadedModel) -> list[str]:
    return [adapter.name for adapter in adapters_of(loaded)]


def _adapter(loaded: LoadedModel, name: str) -> str:
    """The adapter that a model's name asks for; "" where it is the model's own."""
    return name if name in _adapters(loaded) else ""


def _cut(told: ContextCut) -> str:
    """Header value that names what of the conversation the model does not see."""
    if told.policy == "window":
        return f"window; sinks={told.sinks}; window={told.window}; tokens={told.tokens}"
    return f"drop_middle; first={told.first}; last={told.last}; tokens={told.tokens}"


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")

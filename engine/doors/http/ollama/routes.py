"""HTTP in Ollama's shapes: /api/chat, /api/generate and /api/embed, and what clients ask of models. Of the rest it says
that it is not served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from engine.doors.http.body import read_body
from engine.doors.http.embedding import EmbeddingRequest, embedded, model_for
from engine.doors.http.errors import FAILURES, refusal_of
from engine.doors.http.fields import decoded
from engine.doors.http.ollama.types import (
    SOONEST,
    AnswerFigures,
    ChatOut,
    Details,
    EmbeddingsIn,
    EmbeddingsOut,
    EmbedIn,
    EmbedOut,
    GenerateIn,
    GenerateOut,
    ListedModel,
    OllamaChat,
    OllamaModelList,
    ShowIn,
    ShownModel,
)
from engine.doors.http.ollama.writer import lines, part_of, whole
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.service import (
    HttpService,
    StreamedAnswer,
    adapter_of,
    cut_header,
    json_response,
    notice_header,
    purpose_of,
    while_there,
)
from engine.doors.security import HttpRefusal
from engine.library.local import size_of
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import Stream
from engine.services.residency import Lease
from engine.text.prompt import PromptForm

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

_In = TypeVar("_In", OllamaChat, GenerateIn, EmbedIn, EmbeddingsIn)
VERSION = "0.12.0"
"""The version of Ollama whose interface this is: clients compare it with what they need."""
NEVER = "0001-01-01T00:00:00Z"
"""The time that Go writes for none."""
LATEST = ":latest"
"""Tag that Ollama's clients add to a name without one."""
ELSEWHERE = {
    "blobs/{digest:path}": "Models are brought by `kvasir models get` or the window's page Models.",
    "copy": "Models are copied as files.",
    "create": "Models are made by `kvasir quantise`.",
    "delete": "Models are deleted by `kvasir models rm` or the window's page Models.",
    "pull": "Models are brought by `kvasir models get` or the window's page Models.",
    "push": "Models are not published from here.",
}
"""The rest of the interface, with what to do instead."""


class OllamaRoutes:
    """The dialect of Ollama's clients."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        return [
            Served("/", self.here, open=True),
            Served("/api/version", self.version, gives=dict[str, str], open=True),
            Served("/api/tags", partial(self._list, self.tags), gives=OllamaModelList),
            Served("/api/ps", partial(self._list, self.running), gives=OllamaModelList),
            Served("/api/show", self.show, ["POST"], [ShowIn], ShownModel),
            Served("/api/chat", self._serving(OllamaChat, self._answer), ["POST"], [OllamaChat], *_told(ChatOut)),
            Served(
                "/api/generate", self._serving(GenerateIn, self._answer), ["POST"], [GenerateIn], *_told(GenerateOut)
            ),
            Served("/api/embed", self._serving(EmbedIn, self._embedded), ["POST"], [EmbedIn], EmbedOut),
            Served(
                "/api/embeddings", self._serving(EmbeddingsIn, self._embedded), ["POST"], [EmbeddingsIn], EmbeddingsOut
            ),
            *(
                Served(f"/api/{name}", partial(self._elsewhere, said), ["POST", "DELETE", "HEAD"], status=501)
                for name, said in ELSEWHERE.items()
            ),
        ]

    async def here(self, request: Request) -> Response:
        """Ollama's clients look here for whether it runs."""
        return PlainTextResponse("Kvasir is running")

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def _list(self, models: Callable[[], Awaitable[list[ListedModel]]], request: Request) -> Response:
        if (refusal := self._service.stranger(request, _error)) is not None:
            return refusal
        return json_response(OllamaModelList(await models()))

    async def tags(self) -> list[ListedModel]:
        """The models that a request may name."""
        present = await self.running()
        names = {model.name for model in present}
        others = [name for name in await self._service.residency.loadable() if name not in names]
        listed = [msgspec.structs.replace(each, size_vram=None, context_length=0) for each in present]
        return listed + [ListedModel(name, name) for name in others]

    async def running(self) -> list[ListedModel]:
        loaded = self._service.hub.loaded
        return [] if loaded is None else [await asyncio.to_thread(_listed, loaded)]

    async def show(self, request: Request) -> Response:
        if (refusal := self._service.stranger(request, _error)) is not None:
            return refusal
        try:
            asked = decoded(await read_body(request), ShowIn)
            return json_response(_shown(self._service.loaded(_named(asked.model or asked.name))))
        except FAILURES as error:
            return _error(refusal_of(error))

    def _serving(
        self, kind: type[_In], answer: Callable[[Request, _In, Lease], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        def refused(error: Exception) -> Response:
            return _error(refusal_of(error))

        return self._service.serving(
            lambda request, body, use: answer(request, decoded(body, kind), use), refused, _error
        )

    async def _answer(self, request: Request, wanted: OllamaChat | GenerateIn, use: Lease) -> Response:
        began, ttl, part = time.monotonic(), wanted.ttl, part_of(wanted)
        name = _named(wanted.model)
        if wanted.empty and wanted.keep_alive is not None and ttl and ttl <= SOONEST:
            return await self._unloaded(name, wanted)
        await while_there(request, use.model(name, ttl))
        loaded = self._service.loaded(name)
        wanted.check(loaded.card.vocabulary)
        loaded_in = time.monotonic() - began
        if wanted.empty:
            figures = AnswerFigures("load", round(1e9 * loaded_in), round(1e9 * loaded_in))
            return json_response({**msgspec.to_builtins(part("", "", True)), **msgspec.to_builtins(figures)})
        asked = AnswerRequest(
            wanted.conversation(),
            wanted.sampling(),
            wanted.thinking,
            wanted.overflow,
            PromptForm(prefills=wanted.prefills, tools=wanted.tool_config()),
            adapter=adapter_of(loaded, name),
            structured=wanted.structured,
        )
        if isinstance(wanted, GenerateIn) and wanted.suffix:
            infill = asked._replace(prompt="")
            prompt, cut = await self._service.infill(infill, wanted.prompt, wanted.suffix, loaded), None
        else:
            prompt, cut = await while_there(request, self._service.prompt(asked, loaded))
        headers = notice_header(loaded, asked.tools) | ({} if cut is None else cut_header(cut))

        async def write(stream: Stream) -> Response:
            if wanted.stream:
                body = lines(stream, part, loaded_in)
                return StreamedAnswer(body, "application/x-ndjson", headers, stream, use)
            text = await while_there(request, whole(stream, part, loaded_in))
            return Response(text, media_type="application/json", headers=headers)

        return await self._service.answer(request, [prompt], wanted.stream, write)

    async def _embedded(self, request: Request, wanted: EmbedIn | EmbeddingsIn, use: Lease) -> Response:
        began, name = time.monotonic(), _named(wanted.model)
        model = await model_for(self._service, request, use, name, wanted.ttl)
        loaded_in = time.monotonic() - began
        field = "input" if isinstance(wanted, EmbedIn) else "prompt"
        asked = EmbeddingRequest(
            wanted.inputs, field, wanted.dimensions or None, None, wanted.truncate, adapter_of(model.loaded, name)
        )
        vectors, tokens = await embedded(self._service, request, model, asked)
        seconds = {"total_duration": time.monotonic() - began, "load_duration": loaded_in}
        figures = {key: round(1e9 * value) for key, value in seconds.items()} | {"prompt_eval_count": tokens}
        return json_response(wanted.written([vector.tolist() for vector in vectors], figures))

    async def _unloaded(self, name: str, wanted: OllamaChat | GenerateIn) -> Response:
        """Let a model go at once, as a request for nothing asks that is not to keep it."""
        self._service.loaded(name)
        self._service.residency.unload()
        await self._service.hub.caught_up()
        return json_response({**msgspec.to_builtins(part_of(wanted)("", "", True)), "done_reason": "unload"})

    async def _elsewhere(self, instead: str, request: Request) -> Response:
        text = f"{request.url.path} is not served here. {instead}"
        return self._service.stranger(request, _error) or _error(HttpRefusal(501, "not_served", text))


def _named(name: str) -> str:
    return name.removesuffix(LATEST)


def _listed(loaded: LoadedModel) -> ListedModel:
    card, weights = loaded.card, loaded.model.storage_size() if loaded.model is not None else 0
    return ListedModel(
        card.name,
        card.name,
        _modified(loaded.command.path),
        size_of(Path(loaded.command.path)),
        _details(loaded),
        size_vram=weights if loaded.device.type != "cpu" else 0,
        context_length=card.context,
    )


def _shown(loaded: LoadedModel) -> ShownModel:
    card = loaded.card
    sees = ["vision"] if card.pictures else []
    thinks = [] if card.thinking.kind == "none" else ["thinking"]
    tools = ["tools"] if loaded.files is not None and loaded.files.tools.own else []
    info: dict[str, str | int] = {
        "general.architecture": card.architecture,
        "general.basename": card.name,
        "general.parameter_count": card.parameters,
        f"{card.architecture}.context_length": card.context,
        f"{card.architecture}.vocab_size": card.vocabulary,
    }
    return ShownModel(
        _modified(loaded.command.path), _details(loaded), [purpose_of(loaded), *tools, *sees, *thinks], info
    )


def _details(loaded: LoadedModel) -> Details:
    card = loaded.card
    kind = "gguf" if loaded.command.path.endswith(".gguf") else "safetensors"
    count = card.parameters
    size = f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.2f}M"
    return Details(kind, card.architecture, [card.architecture], size, card.quantisation)


def _modified(path: str) -> str:
    try:
        seconds = Path(path).stat().st_mtime
    except OSError:
        return NEVER
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _told(part: type) -> tuple[type, Streamed]:
    """An answer, and what it is as a stream."""
    return part, Streamed("application/x-ndjson", part)


def _error(refusal: HttpRefusal) -> JSONResponse:
    return JSONResponse({"error": refusal.message}, status_code=refusal.status)

"""HTTP in OpenAI's shapes: /v1/models, /v1/chat/completions and /v1/completions, streamed or whole."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.http.errors import FAILURES, refusal_of
from engine.doors.http.fields import decoded
from engine.doors.http.openai.codex import EFFORTS, CodexEffort, CodexModel
from engine.doors.http.openai.stream import events, whole
from engine.doors.http.openai.types import (
    ChatChoice,
    ChatChunkChoice,
    Completion,
    CompletionIn,
    Ids,
    ModelOut,
    OpenAIChat,
    OpenAIModelList,
    StreamOptions,
    TextChoice,
)
from engine.doors.http.openai.writers import ChatWriter, Echo, TextWriter, Writer
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.pictures import fetch_pictures
from engine.doors.http.service import (
    HttpService,
    StreamedAnswer,
    adapter_names,
    adapter_of,
    cut_header,
    json_response,
    notice_header,
    purpose_of,
    while_there,
)
from engine.doors.http.timings import Pace
from engine.doors.security import error_response
from engine.protocol import ChatMessage, ContextCut
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.residency import Lease
from engine.text.detokenise import detokeniser
from engine.text.prompt import PromptForm

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

CHAT, CHUNK, TEXT = Completion[ChatChoice], Completion[ChatChunkChoice], Completion[TextChoice]


class OpenAIRoutes:
    """The dialect that OpenAI's clients speak, and those of most other servers."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Routes with a slash at the end or none, below /v1 or not: clients differ in what they add to an address. Bare
        /completions is llama.cpp's too, and served there."""
        return [
            *(
                route
                for base in ("/v1", "")
                for route in (
                    Served(f"{base}/models", self.models, gives=OpenAIModelList),
                    Served(f"{base}/models/{{name:path}}", self.model, gives=ModelOut),
                    *_posted(f"{base}/chat/completions", self.chat, OpenAIChat, CHAT, CHUNK),
                )
            ),
            *_posted("/v1/completions", self.complete, CompletionIn, TEXT, TEXT),
        ]

    async def models(self, request: Request) -> Response:
        if (refusal := self._service.stranger(request)) is not None:
            return refusal
        loaded = self._service.hub.loaded
        names = [] if loaded is None else [loaded.card.name, *adapter_names(loaded)]
        catalogue = [] if loaded is None else [_for_codex(loaded, name) for name in names]
        return json_response(OpenAIModelList(data=await self._models(), models=catalogue))

    async def model(self, request: Request) -> Response:
        if not request.path_params["name"]:
            return await self.models(request)
        if (refusal := self._service.stranger(request)) is not None:
            return refusal
        try:
            name = request.path_params["name"].removesuffix("/")
            if (waits := next((model for model in await self._models() if model.id == name), None)) is not None:
                return json_response(waits)
            return json_response(_described(self._service.loaded(name)))
        except Refused as error:
            return error_response(refusal_of(error))

    async def _models(self) -> list[ModelOut]:
        """List the models that are loaded, then those that a request may have loaded."""
        loaded = self._service.hub.loaded
        there = (
            []
            if loaded is None
            else [_described(loaded), *(_described(loaded, name) for name in adapter_names(loaded))]
        )
        names = {model.id for model in there}
        others = [name for name in await self._service.residency.loadable() if name not in names]
        return there + [ModelOut(id=name, state="not-loaded") for name in others]

    async def chat(self, request: Request) -> Response:
        return await self._serve(request, OpenAIChat, "messages")

    async def complete(self, request: Request) -> Response:
        return await self._serve(request, CompletionIn, "prompt")

    async def _serve(self, request: Request, kind: type[OpenAIChat] | type[CompletionIn], prompt: str) -> Response:
        if (refusal := self._service.stranger(request)) is not None:
            return refusal

        async def answer(body: bytes, use: Lease) -> Response:
            return await self._answer(request, decoded(body, kind), use)

        return await self._service.serve(request, answer, lambda error: _refused(error, prompt, kind))

    async def completed(self, request: Request, body: bytes, use: Lease) -> Response:
        """The response to a ``body`` of /v1/completions that came to another address."""
        try:
            return await self._answer(request, decoded(body, CompletionIn), use)
        except FAILURES as error:
            return _refused(error, "prompt", CompletionIn)

    async def _answer(self, request: Request, wanted: OpenAIChat | CompletionIn, use: Lease) -> Response:
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._service.loaded(wanted.model)
        wanted.check(loaded.card.vocabulary)
        prompts, echoes, headers = await while_there(request, self._prompts(wanted, loaded))

        async def write(stream: Stream) -> Response:
            told = stream.told if wanted.sampling().logprobs is not None else [None] * len(echoes)
            writer = _writer(wanted, loaded, [Echo(*echo, known) for echo, known in zip(echoes, told, strict=True)])
            if wanted.prompt_logprobs is not None:
                writer.tell_prompts(stream.told, wanted.prompt_logprobs)
            pace = Pace(bool(wanted.return_progress), bool(wanted.timings_per_token))
            if wanted.stream:
                body = events(stream, writer, wanted.stream_options or StreamOptions(), pace)
                return StreamedAnswer(body, "text/event-stream", headers, stream, use)
            return json_response(await while_there(request, whole(stream, writer, pace)), headers)

        return await self._service.answer(request, prompts, bool(wanted.stream), write)

    async def _prompts(
        self, wanted: OpenAIChat | CompletionIn, loaded: LoadedModel
    ) -> tuple[list[PromptRequest], list[tuple[str, Sequence[int]]], dict[str, str]]:
        """The prompts as the engine has them, the texts and ids of its prompts, and what a header says of them. Raises
        :class:`Refused`."""
        if self._service.fetches and isinstance(wanted, OpenAIChat):
            await fetch_pictures(wanted.pictured)
        headers = notice_header(loaded, wanted.tool_config()) if isinstance(wanted, OpenAIChat) else {}
        texts: list[tuple[str, Sequence[int]]] = []
        prompts: list[PromptRequest] = []
        for given in [wanted.prompt()] if isinstance(wanted, OpenAIChat) else wanted.prompts():
            prompt, told = await self._prompt(wanted, given, loaded)
            prompts.append(prompt)
            ids = prompt.command.prompt_ids
            texts.append((given if isinstance(given, str) else _text(loaded, ids), ids) if wanted.echoes else ("", ()))
            if told is not None:
                headers |= cut_header(told)
        return prompts, texts, headers

    async def _prompt(
        self, wanted: OpenAIChat | CompletionIn, given: list[ChatMessage] | str | Ids, loaded: LoadedModel
    ) -> tuple[PromptRequest, ContextCut | None]:
        """Build the request for one prompt, and what of it the model does not see. Raises :class:`Refused`."""
        sampling, overflow = wanted.sampling(), wanted.overflow or "stop"
        scored = (sampling.logprobs if wanted.echoes else None, wanted.prompt_logprobs)
        asked = AnswerRequest(
            "" if isinstance(given, Ids) else given,
            sampling,
            overflow=overflow,
            n=wanted.n or 1,
            adapter=adapter_of(loaded, wanted.model),
            prompt_logprobs=max((each for each in scored if each is not None), default=None),
            structured=wanted.structured(),
        )
        if isinstance(wanted, CompletionIn) and wanted.suffix and isinstance(given, str):
            return await self._service.infill(asked, given, wanted.suffix, loaded), None
        if isinstance(given, Ids):
            return await self._service.prompt_of(asked, given, loaded), None
        if isinstance(wanted, OpenAIChat):
            opens = wanted.add_generation_prompt is not False
            form = PromptForm(wanted.prefills(), opens, wanted.variables(), wanted.tool_config())
            asked = asked._replace(thinking=wanted.wanted_thinking(), form=form)
        return await self._service.prompt(asked, loaded)


def _refused(error: Exception, prompt: str, kind: type[OpenAIChat] | type[CompletionIn]) -> Response:
    return error_response(refusal_of(error, prompt, kind.__struct_fields__))


def _posted(
    path: str, endpoint: Callable[[Request], Awaitable[Response]], takes: type, gives: Any, part: Any
) -> list[Route]:
    streamed = Streamed("text/event-stream", part)
    return [Served(end, endpoint, ["POST"], [takes], gives, streamed) for end in (path, f"{path}/")]


def _writer(wanted: OpenAIChat | CompletionIn, loaded: LoadedModel, echoes: Sequence[Echo]) -> Writer:
    assert loaded.files is not None
    number, now = secrets.token_hex(12), int(time.time())
    name = adapter_of(loaded, wanted.model) or loaded.card.name
    if isinstance(wanted, OpenAIChat):
        return ChatWriter(f"chatcmpl-{number}", now, name, loaded.files.tokenizer, wanted.tells_thinking)
    shown = echoes if wanted.echoes else ()
    return TextWriter(f"cmpl-{number}", now, name, loaded.files.tokenizer, shown, wanted.n or 1, wanted.logprobs or 0)


def _text(loaded: LoadedModel, ids: Sequence[int]) -> str:
    """The text of a prompt that came as ids."""
    assert loaded.files is not None
    stream = detokeniser(loaded.files.tokenizer, ())
    return "".join(map(stream.push, ids))


def _described(loaded: LoadedModel, adapter: str = "") -> ModelOut:
    """Description that clients get of the loaded model, or of an adapter of it."""
    card = loaded.card
    sees = [] if loaded.pictures.processor is None else ["vision"]
    thinks = [] if card.thinking.kind == "none" else ["thinking"]
    tools = ["tools"] if loaded.files is not None and loaded.files.tools.own else []
    return ModelOut(
        id=adapter or card.name,
        created=_made(loaded.command.path),
        root=card.name,
        parent=card.name if adapter else None,
        max_model_len=card.context,
        context_length=card.context,
        capabilities=[purpose_of(loaded), *tools, *sees, *thinks],
        meta={"n_ctx": card.context, "n_vocab": card.vocabulary, "n_params": card.parameters},
    )


def _for_codex(loaded: LoadedModel, name: str) -> CodexModel:
    """What Codex wants to know of the loaded model, or of an adapter of it."""
    card = loaded.card
    sees = loaded.pictures.processor is not None
    return CodexModel(
        slug=name,
        display_name=name,
        context_window=card.context,
        input_modalities=["text", "image"] if sees else ["text"],
        capabilities=["completion", "multimodal"] if sees else ["completion"],
        supported_reasoning_levels=[CodexEffort(each, each) for each in card.thinking.efforts if each in EFFORTS],
        supports_reasoning_summaries=card.thinking.kind != "none",
    )


def _made(path: str) -> int:
    """Time at which a model came to this machine (its path's mtime), in seconds since 1970; 0 if that is not known."""
    try:
        return int(Path(path).stat().st_mtime)
    except (OSError, ValueError):
        return 0

"""HTTP in OpenAI's shapes: /v1/models, /v1/chat/completions and /v1/completions, streamed or whole."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.http.errors import FAILURES, refusal_of
from engine.doors.http.fields import BadField, decoded, named
from engine.doors.http.load import load_header
from engine.doors.http.openai.answers import (
    ChatChoice,
    ChatChunkChoice,
    Completion,
    ModelOut,
    OpenAIModelList,
    TextChoice,
)
from engine.doors.http.openai.codex import EFFORTS, CodexEffort, CodexModel
from engine.doors.http.openai.embeddings import EmbeddingIn, EmbeddingRoutes
from engine.doors.http.openai.stream import events, whole
from engine.doors.http.openai.types import (
    CompletionIn,
    ConversationsIn,
    Ids,
    OpenAIChat,
    OpenAIRequest,
    Prompt,
    StreamOptions,
    conversations,
)
from engine.doors.http.openai.writers import ChatWriter, ReadPrompt, Telling, TextWriter, Writer
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.pictures import fetch_pictures
from engine.doors.http.service import (
    HttpService,
    StreamedAnswer,
    adapter_names,
    adapter_of,
    checked_window,
    cut_header,
    json_response,
    notice_header,
    purpose_of,
    while_there,
)
from engine.doors.http.timings import AnswerPace
from engine.doors.security import error_response
from engine.loop.commands import AddRequest
from engine.protocol import ContextCut
from engine.services.answers.answering import tokenised
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.answers.structured import held_in_thread
from engine.services.residency import Lease
from engine.text.detokenise import detokeniser

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

CHAT, CHUNK, TEXT = Completion[ChatChoice], Completion[ChatChunkChoice], Completion[TextChoice]


class OpenAIRoutes:
    """The dialect that OpenAI's clients speak, and those of most other servers."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._embeddings = EmbeddingRoutes(service)

    def routes(self) -> list[Route]:
        """Routes with a slash at the end or none, below /v1 or not: clients differ in what they add to an address. Bare
        /completions is llama.cpp's too, and served there."""
        batch = self._service.serving(self._batch, _refused)
        invoke = self._service.serving(self._invoke, _refused)
        chat = self._serving(OpenAIChat, "messages")
        return [
            Served("/invocations", invoke, ["POST"], [OpenAIChat, CompletionIn, EmbeddingIn]),
            *self._embeddings.routes(),
            *(
                route
                for base in ("/v1", "")
                for route in (
                    Served(f"{base}/models", self.models, gives=OpenAIModelList),
                    Served(f"{base}/models/{{name:path}}", self.model, gives=ModelOut),
                    *_posted(f"{base}/chat/completions", chat, OpenAIChat, CHAT, CHUNK),
                    Served(f"{base}/chat/completions/batch", batch, ["POST"], [ConversationsIn], CHAT),
                )
            ),
            *_posted("/v1/completions", self._serving(CompletionIn, "prompt"), CompletionIn, TEXT, TEXT),
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
        embedder = self._service.residency.embedder
        if embedder.name and embedder.name not in names:
            state: Literal["loaded", "not-loaded"] = "loaded" if embedder.bytes else "not-loaded"
            there.append(ModelOut(id=embedder.name, state=state, capabilities=["embedding"]))
            names.add(embedder.name)
        others = [name for name in await self._service.residency.loadable() if name not in names]
        return there + [ModelOut(id=name, state="not-loaded") for name in others]

    def _serving(self, kind: type[OpenAIRequest], prompt: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request, body: bytes, use: Lease) -> Response:
            return await self._answer(request, [decoded(body, kind)], use)

        return self._service.serving(answer, lambda error: _refused(error, kind, prompt))

    async def _batch(self, request: Request, body: bytes, use: Lease) -> Response:
        return await self._answer(request, conversations(body), use)

    async def _invoke(self, request: Request, body: bytes, use: Lease) -> Response:
        """Amazon SageMaker has one address for all: what a request is, its fields say."""
        fields = named(body)
        if "input" in fields or "encoding_format" in fields:
            return await self._embeddings.answer(request, body, use)
        kind: type[OpenAIRequest] = CompletionIn if "prompt" in fields else OpenAIChat
        return await self._answer(request, [decoded(body, kind)], use)

    async def completed(self, request: Request, body: bytes, use: Lease) -> Response:
        """The response to a ``body`` of /v1/completions that came to another address."""
        try:
            return await self._answer(request, [decoded(body, CompletionIn)], use)
        except FAILURES as error:
            return _refused(error, CompletionIn, "prompt")

    async def _answer(self, request: Request, asked: Sequence[OpenAIRequest], use: Lease) -> Response:
        """Answer requests that differ in their prompts alone."""
        wanted = asked[0]
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._service.loaded(wanted.model)
        for each in asked:
            each.check(loaded.card.vocabulary)
        if wanted.thinking_token_budget is not None and loaded.card.thinking.kind != "none":
            text = f"How long {loaded.card.name} thinks cannot be limited by itself. Leave it out, or set max_tokens."
            raise BadField("thinking_token_budget", text)
        prompts, echoes, headers = await while_there(request, self._prompts(asked, loaded))

        async def write(stream: Stream) -> Response:
            told = stream.told if wanted.sampling().logprobs is not None else [None] * len(prompts)
            given = zip(echoes, prompts, told, strict=True)
            read = [ReadPrompt(echo, prompt.command.prompt_ids, known) for echo, prompt, known in given]
            writer = _writer(wanted, loaded, read)
            if wanted.prompt_logprobs is not None:
                writer.tell_prompts(stream.told, wanted.prompt_logprobs)
            pace = AnswerPace(bool(wanted.return_progress), bool(wanted.timings_per_token))
            if wanted.stream:
                body = events(stream, writer, wanted.stream_options or StreamOptions(), pace)
                return StreamedAnswer(body, "text/event-stream", headers, stream, use)
            answer = await while_there(request, whole(stream, writer, pace))
            return json_response(answer, headers | await load_header(request, self._service.hub))

        return await self._service.answer(request, prompts, bool(wanted.stream), write)

    async def _prompts(
        self, asked: Sequence[OpenAIRequest], loaded: LoadedModel
    ) -> tuple[list[PromptRequest], list[str], dict[str, str]]:
        """The prompts as the engine has them, what is told of each before its answers, and what a header says of them.
        Raises :class:`Refused`."""
        headers = notice_header(loaded, asked[0].form.tools)
        prompts: list[PromptRequest] = []
        echoes: list[str] = []
        for wanted in asked:
            if self._service.fetches and isinstance(wanted, OpenAIChat):
                await fetch_pictures(wanted.pictured)
            for given in wanted.prompts():
                prompt, told = await self._prompt(wanted, given, loaded)
                prompts.append(prompt)
                echoes.append(_echo(wanted, given, prompt.command.prompt_ids, loaded))
                if told is not None:
                    headers |= cut_header(told)
        return prompts, echoes, headers

    async def _prompt(
        self, wanted: OpenAIRequest, given: Prompt, loaded: LoadedModel
    ) -> tuple[PromptRequest, ContextCut | None]:
        """Build the request for one prompt, and what of it the model does not see. Raises :class:`Refused`."""
        sampling = wanted.sampling()
        echoes = isinstance(wanted, CompletionIn) and wanted.echo
        scored = (sampling.logprobs if echoes else None, wanted.prompt_logprobs)
        asked = AnswerRequest(
            ("" if isinstance(wanted, CompletionIn) else []) if isinstance(given, Ids) else given,
            sampling,
            wanted.wanted_thinking(),
            wanted.overflow or "stop",
            wanted.form,
            n=wanted.n or 1,
            adapter=adapter_of(loaded, wanted.model),
            prompt_logprobs=max((each for each in scored if each is not None), default=None),
            structured=wanted.structured(),
            service=wanted.service,
        )
        if isinstance(wanted, CompletionIn) and wanted.suffix and isinstance(given, str):
            return await self._service.infill(asked, given, wanted.suffix, loaded), None
        if isinstance(given, Ids) or wanted.truncate_prompt_tokens is not None:
            return PromptRequest(await self._cut(wanted, given, asked, loaded)), None
        return await self._service.prompt(asked, loaded)

    async def _cut(self, wanted: OpenAIRequest, given: Prompt, asked: AnswerRequest, loaded: LoadedModel) -> AddRequest:
        """The command for a prompt of token ids, or one that is cut to some. Raises :class:`Refused`."""
        hub, context = self._service.hub, loaded.card.context
        grammar, begins = await held_in_thread(hub, loaded, asked.structured, asked.tools)
        tokens = (
            PromptTokens(given)
            if isinstance(given, Ids)
            else (await tokenised(hub, given, asked.thinking, asked.form._replace(begins=begins)))
        )
        ids = wanted.read(tokens.ids, context)
        if tokens.pictures is not None and ids != tokens.ids:
            raise BadField("truncate_prompt_tokens", "A prompt with pictures cannot be cut. Leave them out, or it.")
        window = checked_window(len(ids), asked.overflow == "window", context)
        return asked.command(tokens._replace(ids=ids, grammar=grammar), window)


def _posted(
    path: str, endpoint: Callable[[Request], Awaitable[Response]], takes: type, gives: Any, part: Any
) -> list[Route]:
    streamed = Streamed("text/event-stream", part)
    return [Served(end, endpoint, ["POST"], [takes], gives, streamed) for end in (path, f"{path}/")]


def _writer(wanted: OpenAIRequest, loaded: LoadedModel, prompts: Sequence[ReadPrompt]) -> Writer:
    assert loaded.files is not None
    name = adapter_of(loaded, wanted.model) or loaded.card.name
    top = (wanted.logprobs or 0) if isinstance(wanted, CompletionIn) else 0
    telling = Telling(bool(wanted.return_token_ids), bool(wanted.return_tokens_as_token_ids), top)
    number, now, tokenizer = secrets.token_hex(12), int(time.time()), loaded.files.tokenizer
    if not isinstance(wanted, OpenAIChat):
        return TextWriter(f"cmpl-{number}", now, name, tokenizer, prompts, wanted.n or 1, telling)
    writer = ChatWriter(f"chatcmpl-{number}", now, name, tokenizer, prompts, wanted.n or 1, telling)
    writer.tells_thinking = wanted.tells_thinking
    return writer


def _echo(wanted: OpenAIRequest, given: Prompt, ids: Sequence[int], loaded: LoadedModel) -> str:
    """What is told of a prompt before its answers: of a conversation the message that they go on from."""
    if not wanted.echo:
        return ""
    if isinstance(wanted, OpenAIChat):
        return wanted.prompt()[-1].content if wanted.prefills() else ""
    if isinstance(given, str) and wanted.truncate_prompt_tokens is None:
        return given
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


def _refused(error: Exception, kind: type[OpenAIRequest] = OpenAIChat, prompt: str = "messages") -> Response:
    return error_response(refusal_of(error, prompt, kind.__struct_fields__))

"""HTTP for embeddings in OpenAI's shape, and in llama.cpp's at addresses without a version."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.config.pooling import Pooling
from engine.doors.http.embedding import EmbeddingRequest, Embeddings, embedded, model_for
from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded, named
from engine.doors.http.openai.types import OpenAIChat, OpenAITurn
from engine.doors.http.openapi import Served
from engine.doors.http.pictures import fetch_pictures
from engine.doors.http.prompts import Prompt, PromptsIn, pictured, prompts_of
from engine.doors.http.service import HttpService, adapter_of, json_response, while_there
from engine.doors.security import error_response
from engine.services.answers.answering import tokenised
from engine.services.residency import Lease
from engine.text.cut import Side

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel


class EmbeddingIn(msgspec.Struct, kw_only=True):
    """``pooling`` and ``ttl`` are Kvasir's own. From ``messages`` on they are vLLM's: a conversation instead of inputs,
    written as the model's template has it; ``use_activation`` is the name of ``normalize`` there."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {"add_special_tokens": (True,), "padding": ("do_not_pad",)}

    input: PromptsIn = []
    model: str = ""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    pooling: Pooling | None = None
    truncate_prompt_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    truncation_side: Side | None = None
    messages: list[OpenAITurn] = []
    add_generation_prompt: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    normalize: bool = True
    use_activation: bool = True
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None

    def inputs(self) -> list[Prompt]:
        """Raises BadField where there is none, or one that cannot be read."""
        if self.input == []:
            raise BadField("input", "There is no input. Send some text.")
        return prompts_of(self.input, "input")

    def chat(self) -> OpenAIChat:
        """The conversation that is embedded."""
        return OpenAIChat(
            messages=self.messages,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=False,
            chat_template_kwargs=self.chat_template_kwargs,
        )


class LlamaEmbeddingIn(msgspec.Struct, kw_only=True):
    """llama.cpp's own form, at length 1."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {"embd_normalize": (2,)}

    content: PromptsIn
    model: str = ""


class EmbeddingOut(msgspec.Struct):
    index: int
    embedding: list[float] | str
    """Numbers, or the base64 of their float32, little-endian."""
    object: str = "embedding"


class EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct):
    data: list[EmbeddingOut]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


class LlamaEmbeddingOut(msgspec.Struct):
    """``embedding`` has one vector, that of the whole prompt."""

    index: int
    embedding: list[list[float]]


class EmbeddingRoutes:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        embed, either, own = map(self._serving, (self.answer, self._embed_either, self._embed_own))
        forms, both = [EmbeddingIn, LlamaEmbeddingIn], EmbeddingList | list[LlamaEmbeddingOut]
        return [
            *(
                Served(path, embed, ["POST"], forms[:1], EmbeddingList)
                for path in ("/v1/embeddings", "/v1/embeddings/")
            ),
            *(Served(path, either, ["POST"], forms, both) for path in ("/embeddings", "/embeddings/")),
            Served("/embedding", own, ["POST"], forms[1:], list[LlamaEmbeddingOut]),
        ]

    def _serving(
        self, answer: Callable[[Request, bytes, Lease], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        return self._service.serving(answer, lambda error: error_response(refusal_of(error, "input")))

    async def _embed_either(self, request: Request, body: bytes, use: Lease) -> Response:
        return await (self._embed_own if "content" in named(body) else self.answer)(request, body, use)

    async def answer(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, EmbeddingIn)
        name, (vectors, tokens) = await self._embedded(request, wanted, use)
        packed = wanted.encoding_format == "base64"
        data = [EmbeddingOut(n, _packed(each) if packed else each.tolist()) for n, each in enumerate(vectors)]
        return json_response(EmbeddingList(data, name, EmbeddingUsage(tokens, tokens)))

    async def _embed_own(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, LlamaEmbeddingIn)
        _, found = await self._embedded(request, EmbeddingIn(input=wanted.content, model=wanted.model), use)
        return json_response([LlamaEmbeddingOut(n, [each.tolist()]) for n, each in enumerate(found.vectors)])

    async def _embedded(self, request: Request, wanted: EmbeddingIn, use: Lease) -> tuple[str, Embeddings]:
        """The name of who made the embeddings, and these."""
        if self._service.fetches:
            await while_there(request, fetch_pictures(pictured(wanted.input, "input")))
        inputs = [] if wanted.messages else wanted.inputs()
        model = await model_for(self._service, request, use, wanted.model, wanted.ttl)
        loaded = model.loaded
        adapter = adapter_of(loaded, wanted.model)
        if wanted.messages:
            inputs = [await while_there(request, self._written(wanted.chat(), loaded))]
        most = wanted.truncate_prompt_tokens
        asked = EmbeddingRequest(
            inputs,
            "messages" if wanted.messages else "input",
            wanted.dimensions,
            wanted.pooling,
            most is not None,
            adapter,
            max(most or 0, 0),
            wanted.truncation_side or "right",
            wanted.normalize and wanted.use_activation,
        )
        return adapter or loaded.card.name, await embedded(self._service, request, model, asked)

    async def _written(self, chat: OpenAIChat, loaded: LoadedModel) -> Prompt:
        """The tokens of a conversation. Raises BadField and PromptError."""
        chat.check(loaded.card.vocabulary)
        prompt = await tokenised(self._service.hub, chat.prompt(), chat.wanted_thinking(), chat.form)
        if prompt.pictures is not None:
            raise BadField("messages", "Pictures are not embedded here. Send text alone.")
        return [*prompt.ids]


def _packed(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()

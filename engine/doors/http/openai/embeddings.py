"""HTTP in OpenAI's shape: /v1/embeddings."""

from __future__ import annotations

import base64
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.config.pooling import Pooling
from engine.doors.http.embedding import EmbeddingRequest, embedded
from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.openapi import Served
from engine.doors.http.prompts import Mixed, PromptsIn, prompts_of
from engine.doors.http.service import HttpService, adapter_of, while_there
from engine.doors.security import error_response
from engine.services.residency import Lease


class EmbeddingIn(msgspec.Struct, kw_only=True):
    """``pooling`` and ``ttl`` are Kvasir's own."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {"add_special_tokens": (True,), "normalize": (True,)}

    input: PromptsIn
    model: str = ""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    pooling: Pooling | None = None
    truncate_prompt_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None

    def inputs(self) -> list[str | Mixed]:
        """Raises BadField where there is none, or one that cannot be read."""
        if self.input == []:
            raise BadField("input", "There is no input. Send some text.")
        return prompts_of(self.input, "input")


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


class EmbeddingRoutes:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        paths = ("/v1/embeddings", "/v1/embeddings/", "/embeddings", "/embeddings/")
        embed = self._service.serving(self.answer, lambda error: error_response(refusal_of(error, "input")))
        return [Served(path, embed, ["POST"], [EmbeddingIn], EmbeddingList) for path in paths]

    async def answer(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, EmbeddingIn)
        inputs = wanted.inputs()
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._service.loaded(wanted.model)
        adapter = adapter_of(loaded, wanted.model)
        most = wanted.truncate_prompt_tokens
        asked = EmbeddingRequest(
            inputs, "input", wanted.dimensions, wanted.pooling, most is not None, adapter, max(most or 0, 0)
        )
        vectors, tokens = await embedded(self._service, request, loaded, asked)
        packed = wanted.encoding_format == "base64"
        data = [EmbeddingOut(n, _packed(each) if packed else each.tolist()) for n, each in enumerate(vectors)]
        told = EmbeddingList(data, adapter or loaded.card.name, EmbeddingUsage(tokens, tokens))
        return Response(msgspec.json.encode(told), media_type="application/json")


def _packed(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()

"""HTTP in Cohere's shape: /v2/embed.

Source: https://docs.cohere.com/reference/embed. Reranking, which is Cohere's too, has its own dialect.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.base.files import UnreadableFileError
from engine.doors.http.embedding import EmbeddingRequest, embedded, model_for
from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.openapi import Served
from engine.doors.http.service import HttpService, adapter_of, json_response, while_there
from engine.doors.security import error_response
from engine.formats.pooling import folder_prompt
from engine.services.answers.refused import shortened
from engine.services.residency import Lease

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

Form = Literal["float", "base64", "binary", "ubinary"]


class TextPart(msgspec.Struct):
    type: str
    text: str = ""


class EmbedContent(msgspec.Struct):
    content: list[TextPart]


class CohereEmbedIn(msgspec.Struct, kw_only=True):
    """``input_type`` says what the texts are for; models whose makers put words before each kind get these."""

    model: str = ""
    input_type: str = ""
    texts: list[str] = []
    inputs: list[EmbedContent] = []
    embedding_types: list[Form] = []
    output_dimension: int | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    truncate: Literal["NONE", "START", "END"] = "END"

    def given(self) -> tuple[list[str], str]:
        """The texts, and their field. Raises BadField."""
        if bool(self.texts) == bool(self.inputs):
            raise BadField("texts", "Send texts or inputs, and one of both.")
        for number, each in enumerate(self.inputs):
            for part in each.content:
                if part.type != "text":
                    text = f"A part of type {shortened(part.type)!r} is not embedded here. Send text."
                    raise BadField(f"inputs[{number}].content", text)
        found = self.texts or ["".join(part.text for part in each.content) for each in self.inputs]
        return found, "texts" if self.texts else "inputs"


class CohereEmbedOut(msgspec.Struct):
    id: str
    embeddings: dict[Form, list[Any]]
    texts: list[str]
    meta: dict[str, Any]
    response_type: str = "embeddings_by_type"


class CohereRoutes:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        embed = self._service.serving(self._embed, lambda error: error_response(refusal_of(error, "texts")))
        return [Served(path, embed, ["POST"], [CohereEmbedIn], CohereEmbedOut) for path in ("/v2/embed", "/v2/embed/")]

    async def _embed(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, CohereEmbedIn)
        texts, field = wanted.given()
        model = await model_for(self._service, request, use, wanted.model)
        loaded = model.loaded
        prefix = await while_there(request, asyncio.to_thread(_prompt, loaded, wanted.input_type))
        asked = EmbeddingRequest(
            [prefix + text if text else text for text in texts],
            field,
            wanted.output_dimension,
            truncates=wanted.truncate != "NONE",
            adapter=adapter_of(loaded, wanted.model),
            most=wanted.max_tokens or 0,
            side="left" if wanted.truncate == "START" else "right",
        )
        vectors, tokens = await embedded(self._service, request, model, asked)
        forms: list[Form] = wanted.embedding_types or ["float"]
        made = {form: [_FORMS[form](each) for each in vectors] for form in forms}
        meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
        return json_response(CohereEmbedOut(secrets.token_hex(12), made, texts, meta))


def _prompt(loaded: LoadedModel, kind: str) -> str:
    """What the model's makers put before a text of that kind, as they or sentence-transformers call it. Raises
    BadField."""
    folder = Path(loaded.command.path)
    try:
        return folder_prompt(folder, kind) or folder_prompt(folder, kind.removeprefix("search_"))
    except UnreadableFileError as error:
        raise BadField("input_type", str(error)) from error


def _bits(vector: np.ndarray) -> np.ndarray:
    """Signs of the numbers, the first one as the highest bit of its byte."""
    return np.packbits(vector > 0)


_FORMS: dict[Form, Callable[[np.ndarray], Any]] = {
    "float": lambda vector: vector.tolist(),
    "base64": lambda vector: base64.b64encode(vector.astype("<f4").tobytes()).decode(),
    "binary": lambda vector: (_bits(vector).astype(int) - 128).tolist(),
    "ubinary": lambda vector: _bits(vector).tolist(),
}

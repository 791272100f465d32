"""HTTP for ranking documents: /rerank in the shape of Cohere, Jina, vLLM and llama.cpp, or of text-embeddings-inference
where the request has ``texts``; /score in vLLM's.

Source: https://docs.cohere.com/reference/rerank, https://docs.vllm.ai/en/latest/models/pooling_models/scoring.html.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.openapi import Served
from engine.doors.http.rerank.scores import RankRequest, RerankScores, scored
from engine.doors.http.service import HttpService, adapter_of, json_response, while_there
from engine.doors.security import error_response
from engine.services.residency import Lease

_Least0 = Annotated[int, msgspec.Meta(ge=0)]


class Document(msgspec.Struct):
    text: str


Texts = str | list[str | Document]


class _RankIn(msgspec.Struct, kw_only=True):
    """``ttl`` is Kvasir's own. Scores are between 0 and 1, unless ``use_activation`` is false."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {
        "add_special_tokens": (True,),
        "max_tokens_per_query": (0,),
        "truncation_direction": ("right", "Right"),
        "truncation_side": ("right",),
    }

    model: str = ""
    instruction: str = ""
    truncate_prompt_tokens: int | None = None
    max_tokens_per_doc: _Least0 = 0
    use_activation: bool = True
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None

    def asked(self, pairs: Sequence[tuple[str, str]], field: str, adapter: str) -> RankRequest:
        limit, most = self.truncate_prompt_tokens, self.max_tokens_per_doc
        return RankRequest(pairs, field, self.instruction, most, limit, adapter)


class RerankIn(_RankIn, kw_only=True):
    """``texts``, ``return_text``, ``raw_scores`` and ``truncate`` are those of text-embeddings-inference."""

    query: str
    documents: Texts = []
    texts: list[str] = []
    top_n: _Least0 = 0
    return_documents: bool = True
    return_text: bool = False
    raw_scores: bool = False
    truncate: bool = False

    def __post_init__(self) -> None:
        self.use_activation = self.use_activation and not self.raw_scores
        if self.truncate and self.truncate_prompt_tokens is None:
            self.truncate_prompt_tokens = -1


class ScoreIn(_RankIn, kw_only=True):
    """One query for all documents, or one for each."""

    queries: Texts = []
    documents: Texts = []
    items: Texts = []
    text_1: Texts = []
    text_2: Texts = []
    data_1: Texts = []
    data_2: Texts = []

    def pairs(self) -> tuple[list[tuple[str, str]], str]:
        """Pairs, and the field of their documents. Raises BadField."""
        forms = ("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")
        first, second = next((each for each in forms if getattr(self, each[0]) and getattr(self, each[1])), ("", ""))
        if not second:
            raise BadField("documents", "There is nothing to score. Send queries and documents.")
        queries, documents = (_texts(getattr(self, field)) for field in (first, second))
        queries = queries * len(documents) if len(queries) == 1 else queries
        if len(queries) != len(documents):
            text = f"{first} are {len(queries):,} and {second} {len(documents):,}. Send one query, or one for each."
            raise BadField(first, text)
        return list(zip(queries, documents, strict=True)), second


class RankUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


class RerankResult(msgspec.Struct, omit_defaults=True):
    index: int
    relevance_score: float
    document: Document | None = None


class RerankOut(msgspec.Struct):
    id: str
    model: str
    usage: RankUsage
    results: list[RerankResult]
    object: str = "list"


class TextScore(msgspec.Struct, omit_defaults=True):
    """A result as text-embeddings-inference has it."""

    index: int
    score: float
    text: str | None = None


class ScoreResult(msgspec.Struct):
    index: int
    score: float
    object: str = "score"


class ScoreOut(msgspec.Struct):
    id: str
    created: int
    model: str
    data: list[ScoreResult]
    usage: RankUsage
    object: str = "list"


class RerankRoutes:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        rerank, score = (self._service.serving(answer, _refused) for answer in (self._rerank, self._score))
        reranking = ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking")
        return [
            *(Served(path, rerank, ["POST"], [RerankIn], RerankOut | list[TextScore]) for path in _slashed(reranking)),
            *(Served(path, score, ["POST"], [ScoreIn], ScoreOut) for path in _slashed(("/v1/score", "/score"))),
        ]

    async def _rerank(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, RerankIn)
        field = "documents" if wanted.documents or not wanted.texts else "texts"
        texts = _texts(wanted.documents or wanted.texts)
        if not texts:
            raise BadField(field, "There are no documents. Send some.")
        name, found = await self._scored(request, wanted, [(wanted.query, text) for text in texts], field, use)
        best = sorted(enumerate(found.logits), key=lambda each: -each[1])[: wanted.top_n or len(texts)]
        if field == "texts":
            return json_response([TextScore(n, score, texts[n] if wanted.return_text else None) for n, score in best])
        shown = wanted.return_documents
        results = [RerankResult(n, score, Document(texts[n]) if shown else None) for n, score in best]
        return json_response(RerankOut(f"rerank-{secrets.token_hex(12)}", name, _usage(found), results))

    async def _score(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, ScoreIn)
        pairs, field = wanted.pairs()
        name, found = await self._scored(request, wanted, pairs, field, use)
        data = [ScoreResult(number, score) for number, score in enumerate(found.logits)]
        return json_response(ScoreOut(f"score-{secrets.token_hex(12)}", int(time.time()), name, data, _usage(found)))

    async def _scored(
        self, request: Request, wanted: _RankIn, pairs: Sequence[tuple[str, str]], field: str, use: Lease
    ) -> tuple[str, RerankScores]:
        """The model's name, and the scores as they are told."""
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._service.loaded(wanted.model)
        adapter = adapter_of(loaded, wanted.model)
        found = await scored(self._service, request, loaded, wanted.asked(pairs, field, adapter))
        told = [_sigmoid(logit) for logit in found.logits] if wanted.use_activation else found.logits
        return adapter or loaded.card.name, RerankScores(told, found.tokens)


def _slashed(paths: Sequence[str]) -> list[str]:
    return [path + end for path in paths for end in ("", "/")]


def _texts(given: Texts | list[str]) -> list[str]:
    if isinstance(given, str):
        return [given]
    return [each if isinstance(each, str) else each.text for each in given]


def _usage(found: RerankScores) -> RankUsage:
    return RankUsage(found.tokens, found.tokens)


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > 0 else math.exp(logit) / (1 + math.exp(logit))


def _refused(error: Exception) -> Response:
    return error_response(refusal_of(error, "documents"))

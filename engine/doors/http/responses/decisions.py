"""HTTP in OpenAI's shape: /v1/decisions, typed questions about one input, answered with probabilities.

The model reads each question with its options behind letters; the probabilities of the letters as its next token are
those of the options. Source: https://platform.openai.com/docs/api-reference/decisions.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.openapi import Served
from engine.doors.http.responses.items import ItemIn, PartIn, conversation, pictured
from engine.doors.http.service import HttpService, adapter_of, json_response, while_there
from engine.doors.security import error_response
from engine.protocol import ChatMessage, Delta, Finished, Sampling, TextPart, Thinking, Usage
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import Stream
from engine.services.residency import Lease
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

LABELS = string.ascii_uppercase
BIAS = 100.0
"""Logit that puts the letters of a question's options before all other tokens, and changes nothing among them."""
NEUTRAL = Sampling(
    temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, repetition_penalty=1.0, max_tokens=1, seed=0
)
REPLY = "Answer with the letter of one option only."


class ChoiceIn(msgspec.Struct, forbid_unknown_fields=True):
    value: str | bool
    description: str = ""


class LevelIn(msgspec.Struct, forbid_unknown_fields=True):
    label: str
    description: str = ""


class QuestionIn(msgspec.Struct, forbid_unknown_fields=True):
    """One question. ``choices`` belong to a choice, ``levels`` to a score; a predicate is true or not."""

    type: Literal["predicate", "choice", "score"]
    instructions: str | list[PartIn]
    name: str | None = None
    choices: list[ChoiceIn] = []
    levels: list[LevelIn] = []

    def text(self, where: str) -> str:
        """The question as the model reads it. Raises BadField."""
        options = [("false", ""), ("true", "")]
        if self.type == "choice":
            options = [(msgspec.json.encode(each.value).decode(), each.description) for each in self.choices]
        elif self.type == "score":
            options = [(each.label, each.description) for each in self.levels]
        field, most = ("choices", len(LABELS)) if self.type == "choice" else ("levels", 10)
        if not 2 <= len(options) <= most or len(dict.fromkeys(options)) < len(options):
            text = f"A {self.type} has 2 to {most} {field} that differ. Ask for more in several questions."
            raise BadField(f"{where}.{field}", text)
        lines = (
            f"{label}: {name} ({explains})" if explains else f"{label}: {name}"
            for label, (name, explains) in zip(LABELS, options, strict=False)
        )
        said = self.instructions
        asked = said if isinstance(said, str) else "\n".join(part.text for part in said)
        return "\n".join([asked, "", *lines, "", REPLY])

    @property
    def size(self) -> int:
        """Number of its options."""
        return {"predicate": 2, "choice": len(self.choices), "score": len(self.levels)}[self.type]

    def answer(self, shares: Sequence[float]) -> dict[str, Any]:
        """What is told of the probabilities of its options."""
        told: dict[str, Any] = {"type": self.type, "name": self.name}
        if self.type == "predicate":
            return told | {"probability": shares[1]}
        best = max(range(len(shares)), key=shares.__getitem__)
        told["confidence"] = shares[best]
        if self.type == "choice":
            pairs = zip(self.choices, shares, strict=True)
            listed = [{"value": choice.value, "probability": share} for choice, share in pairs]
            return told | {"choice": self.choices[best].value, "probabilities": listed}
        levels = enumerate(zip(self.levels, shares, strict=True))
        listed = [{"value": n, "label": level.label, "probability": share} for n, (level, share) in levels]
        return told | {"score": sum(n * share for n, share in enumerate(shares)), "probabilities": listed}


class DecisionsIn(msgspec.Struct, kw_only=True):
    """``ttl`` is Kvasir's own."""

    input: str | list[ItemIn]
    questions: Annotated[list[QuestionIn], msgspec.Meta(min_length=1, max_length=400)]
    model: str = ""
    ttl: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None

    def prompts(self) -> list[list[ChatMessage]]:
        """The conversation with each of the questions at its end. Raises BadField."""
        given = [ItemIn(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        items = [(f"input[{number}]", item) for number, item in enumerate(given)]
        asked = [(f"questions[{number}]", each) for number, each in enumerate(self.questions)]
        parts = [ItemIn(role="user", content=each.instructions) for _, each in asked]
        for where, _ in pictured([*items, *zip((where for where, _ in asked), parts, strict=True)]):
            raise BadField(where, "Decisions have text input only. Leave the pictures out.")
        before = conversation(items)
        return [_with(before, each.text(where)) for where, each in asked]


class DecisionsOut(msgspec.Struct):
    answers: list[dict[str, Any]]
    model: str
    usage: dict[str, Any]


class DecisionRoutes:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        decide = self._service.serving(self._decide, lambda error: error_response(refusal_of(error, "input")))
        paths = ("/v1/decisions", "/v1/decisions/", "/decisions", "/decisions/")
        return [Served(path, decide, ["POST"], [DecisionsIn], DecisionsOut) for path in paths]

    async def _decide(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, DecisionsIn)
        texts = wanted.prompts()
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._service.loaded(wanted.model)
        labels, adapter = _labels(loaded), adapter_of(loaded, wanted.model)
        prompts = []
        for text, question in zip(texts, wanted.questions, strict=True):
            bias = dict.fromkeys(labels[: question.size], BIAS)
            sampling = structs.replace(NEUTRAL, logit_bias=bias, logprobs=question.size, logprobs_drawn=True)
            asked = AnswerRequest(text, sampling, Thinking(on=False), adapter=adapter)
            prompts.append((await while_there(request, self._service.prompt(asked, loaded)))[0])

        async def write(stream: Stream) -> Response:
            tops, usages = await while_there(request, _read(stream))
            found = [
                question.answer(_shares([tops[number].get(label, -math.inf) for label in labels[: question.size]]))
                for number, question in enumerate(wanted.questions)
            ]
            return json_response(DecisionsOut(found, adapter or loaded.card.name, _usage(usages)))

        return await self._service.answer(request, prompts, False, write)


def _with(before: Sequence[ChatMessage], question: str) -> list[ChatMessage]:
    """The conversation with a question in the user's last turn: templates take no two in a row."""
    if before[-1].role != "user":
        return [*before, ChatMessage.of("user", question)]
    return [*before[:-1], structs.replace(before[-1], parts=[*before[-1].parts, TextPart(f"\n\n{question}")])]


def _labels(loaded: LoadedModel) -> list[int]:
    """The letters as tokens. Raises :class:`Refused` for a model whose next token is none."""
    assert loaded.files is not None
    tokenizer: Tokenizer = loaded.files.tokenizer
    ids = [tokenizer.encode(label, special=False) for label in LABELS]
    why = "has no letters that are one token each" if any(len(each) != 1 for each in ids) else ""
    if loaded.card.thinking.kind == "always":
        why = "thinks before each answer"
    if why:
        raise Refused("no_decisions", f"{loaded.card.name} {why}, and so it cannot decide. Load another model.")
    return [each[0] for each in ids]


async def _read(stream: Stream) -> tuple[dict[int, dict[int, float]], list[Usage]]:
    """The log-probabilities of the likeliest tokens of each answer, and what each prompt took. Raises Refused."""
    tops: dict[int, dict[int, float]] = {}
    usages = []
    async for message in stream.messages():
        if isinstance(message, Delta) and message.tokens:
            tops.setdefault(message.answer, dict(message.tokens[0].top))
        elif isinstance(message, Finished):
            usages.append(message.usage)
    return tops, usages


def _shares(logs: Sequence[float]) -> list[float]:
    """Probabilities of the options alone."""
    shares = [math.exp(each) for each in logs]
    return [share / sum(shares) for share in shares]


def _usage(usages: Sequence[Usage]) -> dict[str, Any]:
    given, cached = (sum(getattr(each, name) for each in usages) for name in ("prompt_tokens", "cached_tokens"))
    written = sum(each.generated_tokens for each in usages)
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": given - cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + written,
    }

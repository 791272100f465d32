"""``kvasir bench --cost``: what approximations of keys and values cost in quality, on texts that were not trained on.

The texts are the evaluation's questions, which training never saw. A conversation needs answers as well: those are the
bundled model's own, so its perplexity is low there, and says more about drift than about knowledge. The questions
alone, one after the other, were written by people.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from engine.attention.registry import AttentionDispatcher
from engine.bench.client import EngineClient, EngineError
from engine.cache.policies import KeepAll, PagePolicy, QuestPolicy, WindowWithSinks
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.loading.model import LoadedModel
from engine.models.arenas import new_store, refuses
from engine.protocol import ChatMessage
from engine.runner.perplexity import Reader, Scores, reader, score
from engine.runner.runner import RunnableModel, Runner

EVALUATION = Path(__file__).parents[2] / "assets" / "demo" / "evaluation"
LONGEST = 2048
"""Tokens of a piece, or the model's context where that is shorter."""
WINDOWS = 16
"""The length of a piece, in windows."""


class CostRow(msgspec.Struct, frozen=True):
    """One approximation over all pieces: perplexity, and the mean KL(exact || approximation) in nats.

    ``bits`` of a number in the packed arena, measured from what it allocates; ``bits_in_all`` with the recent tokens of
    a text of this length, which are not packed.
    """

    setting: str
    bits: float
    bits_in_all: float
    perplexity: float
    divergence: float


class TextCost(msgspec.Struct, frozen=True):
    """``length`` tokens in each of ``pieces``; ``exact``: the perplexity at 16 bits with all pages."""

    title: str
    length: int
    pieces: int
    tokens: int
    exact: float
    rows: list[CostRow]


class CostFigures(msgspec.Struct, frozen=True):
    """``absent`` says what the model does not allow."""

    model: str
    texts: list[TextCost]
    absent: list[str] = []


class _Way(NamedTuple):
    title: str
    kind: KVKind
    policy: PagePolicy


def measure_cost(
    client: EngineClient, folder: Path = EVALUATION, say: Callable[[str], None] = lambda line: None
) -> CostFigures:
    """Every approximation that the loaded model allows. Raises EngineError without the texts."""
    loaded = client.model
    length = min(LONGEST, loaded.card.context)
    texts, absent = [], []
    ways = []
    for way in _ways(length):
        reason = _refused(loaded, way)
        if reason:
            absent.append(f"{way.title}: {reason}")
        else:
            ways.append(way)
    for title, ids in _texts(loaded, folder):
        pieces = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)] or [ids]
        rows = []
        exact = 0.0
        for way in ways:
            say(f"{title}: {way.title}")
            scores = [_scored(loaded, way, piece) for piece in pieces]
            exact, perplexity = (_mean([getattr(s, name) for s in scores], scores) for name in ("exact", "present"))
            divergence = sum(s.divergence * s.tokens for s in scores) / sum(s.tokens for s in scores)
            rows.append(CostRow(way.title, *_bits(loaded, way.kind, len(pieces[0])), perplexity, divergence))
        texts.append(TextCost(title, len(pieces[0]), len(pieces), sum(len(p) - 1 for p in pieces), exact, rows))
    return CostFigures(loaded.card.name, texts, absent)


def _ways(length: int) -> Iterator[_Way]:
    keep = KeepAll()
    for kind in (
        KVKind("int8"),
        KVKind("int4"),
        KVKind("kivi", 4, 4),
        KVKind("kivi", 4, 2),
        KVKind("kivi", 2, 4),
        KVKind("kivi", 2, 2),
    ):
        yield _Way(kind.title, kind, keep)
    window = length // WINDOWS
    for sinks in (4, 0):
        if window >= 64:
            title = f"the last {window}" + (f" and the first {sinks}" if sinks else ", no sinks")
            yield _Way(title, KVKind(), WindowWithSinks(window, sinks))
    for part in (2, 4, 8):
        yield _Way(f"QUEST, 1/{part} of the text", KVKind(bounds=True), QuestPolicy(max(PAGE_SIZE, length // part), 1))


def _refused(loaded: LoadedModel, way: _Way) -> str:
    if loaded.model is None:
        return "the model runs over arenas of its own"
    config = loaded.model.config
    return refuses(config, way.kind) or way.policy.refuses(config)


def _texts(loaded: LoadedModel, folder: Path) -> Iterator[tuple[str, list[int]]]:
    try:
        answered = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
        asked = [
            json.loads(line)["question"]
            for name in ("distant", "questions", "development")
            for line in (folder / f"{name}.jsonl").read_text().splitlines()
        ]
    except OSError as error:
        raise EngineError(f"The texts are part of the source tree alone, and {folder} has none.") from error
    turns = []
    for entry in answered:
        turns.append(ChatMessage(role="user", content=entry["question"]))
        turns.append(ChatMessage(role="assistant", content=entry["answer"]))
    assert loaded.tokenizer is not None
    yield "questions kept out of training, answered by the bundled model itself", loaded.encode_prompt(turns)
    yield "questions kept out of training, one after the other", loaded.tokenizer.encode("\n".join(asked))


def _scored(loaded: LoadedModel, way: _Way, ids: Sequence[int]) -> Scores:
    work = score(
        ids,
        _readers(loaded, KVKind(), KeepAll()),
        _readers(loaded, way.kind, way.policy),
        loaded.card.vocabulary,
        way.title,
    )
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(Scores, end.value)


def _readers(loaded: LoadedModel, kind: KVKind, policy: PagePolicy) -> Callable[[int], Reader]:
    """Makes the reader of a text of a given length, with an arena of its own."""
    model = loaded.model
    assert model is not None

    def of(length: int) -> Reader:
        store = new_store(model.config, pages_for(length) + 1, model.dtype, loaded.device, kind)
        return reader(
            Runner(cast(RunnableModel, model), store, AttentionDispatcher(model.numerics), loaded.device), policy
        )

    return of


def _bits(loaded: LoadedModel, kind: KVKind, length: int) -> tuple[float, float]:
    """Bits of a number in the packed arena, and with the most recent tokens that a text of this length may have."""
    model = loaded.model
    assert model is not None
    numbers = model.config.num_layers * model.config.cached_width
    bits = 8 * new_store(model.config, 2, model.dtype, loaded.device, kind).bytes_per_token() / numbers
    recent = min(length, kind.residual + CHANNEL_GROUP - 1) if kind.residual else 0
    return bits, (recent * 8 * model.dtype.itemsize + (length - recent) * bits) / length


def _mean(perplexities: Sequence[float], scores: Sequence[Scores]) -> float:
    """One perplexity over all predictions."""
    logs = sum(math.log(p) * s.tokens for p, s in zip(perplexities, scores, strict=True))
    return math.exp(logs / sum(s.tokens for s in scores))

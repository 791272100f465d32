"""``kvasir bench --cost``: what approximations cost in quality, on texts that were not trained on: those of keys and
values, of activations, and the output head in 8 bits.

The texts are the evaluation's questions, which training never saw. A conversation needs answers as well: those are the
bundled model's own, so its perplexity is low there, and says more about drift than about knowledge. The questions
alone, one after the other, were written by people.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.cache.policies import KeepAll, PagePolicy, WindowWithSinks
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import KVKind, kv_kinds
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.compute.layers.linear.base import Linear, Target
from engine.compute.layers.numerics import EXACT_BITS
from engine.compute.models.arenas import new_store, refuses
from engine.compute.models.base import CausalLM
from engine.compute.runner.perplexity import Scores, score, scored
from engine.formats.quantised.quantise import Module, Quantiser
from engine.formats.source import HEAD
from engine.library.paths import bundled_folder
from engine.loading.model import LoadedModel
from engine.loading.runners import quantises_activations, readers_of
from engine.protocol import ChatMessage
from engine.services.client import EngineClient, EngineError
from engine.services.experiments.reports.tables import say, show_absent, show_table
from engine.services.quantise.quality import joined
from engine.services.training.errors import RecipeError
from engine.services.training.text import held_out_text

EVALUATION = bundled_folder() / "evaluation"
LONGEST = 2048
"""Tokens of a piece, or the model's context where that is shorter."""
WINDOWS = 16
"""The length of a piece, in windows."""


class CostRow(msgspec.Struct, frozen=True):
    """One approximation over all pieces: perplexity, the mean KL(exact || approximation) in nats, and the share of
    predictions whose likeliest token is the same.

    ``bits`` of a number in the packed arena, measured from what it allocates; ``bits_in_all`` with the recent tokens of
    a text of this length, which are not packed.
    """

    setting: str
    bits: float
    bits_in_all: float
    perplexity: float
    divergence: float
    same_top: float = 1.0


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

    def show(self) -> None:
        for text in self.texts:
            show_table(
                f"{self.model}, {text.title}: {text.tokens:,} predictions in {text.pieces} pieces of "
                f"{text.length:,} tokens; perplexity {text.exact:.3f} at 16 bits and all pages",
                "approximation | bits a number | with recent tokens | perplexity | KL, nats | same top token, %",
                (
                    f"{row.setting} | {row.bits:.2f} | {row.bits_in_all:.2f} | {row.perplexity:.3f} | "
                    f"{row.divergence:.5f} | {100 * row.same_top:.1f}"
                    for row in text.rows
                ),
            )
        show_absent(self.absent)


class _Way(NamedTuple):
    """``int8_head``: with the output head in 8 bits, where it has more. ``activations``: their bits."""

    title: str
    kind: KVKind
    policy: PagePolicy
    int8_head: bool = False
    activations: int = EXACT_BITS


def measure_cost(client: EngineClient, folder: Path = EVALUATION) -> CostFigures:
    """Every approximation that the loaded model allows. Raises EngineError without the texts."""
    loaded = client.model
    coarse = loaded.model and _with_int8_head(loaded.model)
    length = min(LONGEST, loaded.card.context)
    texts, absent, ways = [], [], []
    for way in _ways(length):
        reason = "the model runs over arenas of its own"
        if loaded.model is not None:
            reason = refuses(loaded.model.config, way.kind) or way.policy.refuses(loaded.model.config)
            if way.int8_head and coarse is None:
                reason = "it is quantised already"
            if way.activations != EXACT_BITS and not quantises_activations(loaded.model):
                reason = "no product quantises them"
        if reason:
            absent.append(f"{way.title}: {reason}")
        else:
            ways.append(way)
    for title, ids in held_out_texts(loaded, folder):
        pieces = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)] or [ids]
        rows, exact = [], 0.0
        for way in ways:
            say(f"{title}: {way.title}")
            approximating = coarse if way.int8_head else loaded.model
            found = joined([_scored(loaded, way, piece, approximating) for piece in pieces])
            bits = _bits(loaded, way.kind, len(pieces[0]))
            rows.append(CostRow(way.title, *bits, found.present, found.divergence, found.same_top))
            exact = found.exact
        texts.append(TextCost(title, len(pieces[0]), len(pieces), sum(len(p) - 1 for p in pieces), exact, rows))
    return CostFigures(loaded.card.name, texts, absent)


def _with_int8_head(model: CausalLM) -> CausalLM | None:
    """The same layers under a head in 8 bits; None where the head has not 16 or 32."""
    layer = packed(model, HEAD, model.head, "int8") if model.head.kind == "dense" else None
    if layer is None:
        return None
    swapped = copy.copy(model)
    swapped.head = layer
    return swapped


def packed(model: CausalLM, name: str, linear: Linear, method: str) -> Linear | None:
    """A layer of the model as ``method`` packs it; None for one that it leaves alone."""
    module = Module(name, linear.out_features, linear.in_features, lambda: linear.dequantised(model.dtype))
    target = Target(model.dtype, model.device, model.numerics)
    quantiser = Quantiser(method, model.device, stay=())
    return quantiser.layer([module], getattr(linear, "bias", None), target, planning=False)


def _ways(length: int) -> Iterator[_Way]:
    for bits in (8, 16):
        yield _Way(f"{bits}-bit activations", KVKind(), KeepAll(), activations=bits)
    yield _Way("output head in 8 bits", KVKind(), KeepAll(), int8_head=True)
    for each in kv_kinds():
        for widths, mixed in itertools.product(each.widths, (False, True)[: 1 + each.mixes]):
            kind = KVKind(each.name, *widths, hadamard=mixed)
            if kind != KVKind():
                yield _Way(kind.title, kind, KeepAll())
    window = length // WINDOWS
    for sinks in (4, 0):
        if window >= 64:
            title = f"the last {window}" + (f" and the first {sinks}" if sinks else ", no sinks")
            yield _Way(title, KVKind(), WindowWithSinks(window, sinks))
    for part in (2, 4, 8):
        yield _Way(f"QUEST, 1/{part} of the text", KVKind(bounds=True), QuestPolicy(max(PAGE_SIZE, length // part), 1))


def held_out_texts(loaded: LoadedModel, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield each text as its description and its tokens. Raises EngineError if ``folder`` has none."""
    try:
        text = held_out_text(folder)
    except RecipeError as error:
        raise EngineError(str(error)) from error
    turns = []
    for question, answer in text.answered:
        turns.append(ChatMessage.of("user", question))
        turns.append(ChatMessage.of("assistant", answer))
    assert loaded.files is not None
    yield "questions kept out of training, answered by the bundled model itself", loaded.encode_prompt(turns)
    yield "questions kept out of training, one after the other", loaded.files.tokenizer.encode("\n".join(text.asked))


def _scored(loaded: LoadedModel, way: _Way, ids: Sequence[int], model: CausalLM | None) -> Scores:
    """``model`` is the loaded one, or the one that approximates it."""
    assert loaded.model is not None
    assert model is not None
    exact = readers_of(loaded.model, loaded.device, KVKind())(KeepAll()).exact
    present = readers_of(model, loaded.device, way.kind)(way.policy).present
    numerics = loaded.model.numerics
    before, numerics.activations = numerics.activations, way.activations
    try:
        return scored(score(ids, exact, present, loaded.card.vocabulary, way.title))
    finally:
        numerics.activations = before


def _bits(loaded: LoadedModel, kind: KVKind, length: int) -> tuple[float, float]:
    """Bits of a number in the packed arena, and with the most recent tokens that a text of this length may have."""
    model = loaded.model
    assert model is not None
    store = new_store(model.config, 2, model.kv_dtype, loaded.device, kind)
    bits = 8 * store.bytes_per_token() / model.config.cached_elements
    recent = min(length, kind.residual + CHANNEL_GROUP - 1) if kind.residual else 0
    return bits, (recent * 8 * model.kv_dtype.itemsize + (length - recent) * bits) / length

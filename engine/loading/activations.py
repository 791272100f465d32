"""Default bits of activations: 8 where a model's predictions bear it, found with the model itself.

A short conversation is read with products as exact as float32 and with activations of 8 bits; the mean KL divergence of
the predictions decides. Where 8 bits are too few, the spans of 32 input features with the largest errors get 16: some
features of a layer's input are large for every token, and spoil the scale of the others next to them (Dettmers et al.
2022, LLM.int8(), arXiv 2208.07339). All is kept by the model's fingerprint: a file is measured once on a machine.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from engine.base import folders
from engine.base.errors import LoadCancelled
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.cache.policies import KeepAll
from engine.cache.stores.kinds import KVKind
from engine.compute.layers.linear.native import NativeLinear
from engine.compute.layers.numerics import LEAST_BITS
from engine.compute.models.base import CausalLM
from engine.compute.native import library
from engine.compute.runner.perplexity import Scores, score
from engine.library import paths
from engine.loading.files import ModelFiles, fingerprint_of
from engine.loading.runners import flops_per_row, quantises_activations, readers_of
from engine.protocol import ChatMessage, OptionMeasurement, keys
from engine.text.held_out import held_out_text
from engine.text.prompt import prompt_ids
from engine.text.template import PromptError

_log = logging.getLogger(__name__)

BEARABLE = 0.001
"""Nats per token: where 8 bits cost more, 16 are the default."""
ROUNDED = 16
"""The bits of activations where 8 are too few."""
SHARES = (0.2, 0.4, 0.6)
"""Parts of each layer's spans that are given 16 bits, before all get them."""
SPAN = 32
"""Input features with one scale."""
LONGEST, SHORTEST = 256, 64
"""Tokens of the conversation. The predictions of its first half have little before them and are not counted."""
OPERATIONS = 2e11
"""Floating-point operations that one reading of it may take, in models whose shortest text takes no more."""
_EXCHANGES = 40
"""Questions and answers, which are more tokens than the longest text."""
_ROLES: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
MOST = 50
"""Measurements that are kept: the newest."""
LIMIT = 1 << 24
"""Bytes; a larger file is none of ours."""
_EDITION = "activations 2"
"""Edition of the measurement: results of another edition are measured again."""


class Refined(msgspec.Struct, frozen=True):
    """Layers with 8-bit activations of which a ``share`` of the spans has 16, and what that costs, as in
    :class:`ActivationCost`.

    ``spans`` are those of each layer, in the order of :meth:`CausalLM.linears`, a bit each, the first the highest of a
    byte; empty for a layer that no token of the text met, such as an expert's.
    """

    share: float
    divergence: float
    same_top: float
    spans: tuple[bytes, ...]


class ActivationCost(msgspec.Struct, frozen=True):
    """Cost of 8-bit activations: the mean KL(exact || 8-bit) in nats per token, the share of predictions whose
    likeliest token stays the same, and the number of predictions. ``refined``: what is bearable where they are not."""

    divergence: float
    same_top: float
    predictions: int
    refined: Refined | None = None

    @property
    def bearable(self) -> bool:
        """True if 8 bits everywhere are enough."""
        return self.divergence <= BEARABLE

    @property
    def bits(self) -> int:
        """The bits that activations have by default, but for refined spans."""
        return LEAST_BITS if self.bearable or self.refined is not None else ROUNDED

    def apply_to(self, model: CausalLM) -> None:
        """Let the automatic value of the switch mean these bits."""
        model.numerics.automatic = self.bits
        if self.refined is not None:
            _refine(_native_linears(model), self.refined.spans)

    @property
    def found(self) -> Mapping[str, OptionMeasurement]:
        """Result of the measurement, for the row of the switch of activations."""
        sentence = (
            f"Measured with this model: 8-bit activations change its predictions by {self.divergence:.4f} nats per "
            f"token (KL divergence; at most {BEARABLE:g} for auto to take 8 bits), and the likeliest token is the same "
            f"in {100 * self.same_top:.1f}\u00a0% of {self.predictions} places. "
        )
        if (refined := self.refined) is None:
            short = f"auto {self.bits}-bit, KL {self.divergence:.4f}"
            return {keys.ACTIVATIONS: OptionMeasurement(short, f"{sentence}Auto is {self.bits}-bit here.")}
        share = f"{100 * refined.share:.0f}\u00a0%"
        sentence += (
            f"Auto is 8-bit here with 16 bits for {share} of the spans of {SPAN} input features, those with the "
            f"largest errors: {refined.divergence:.4f} nats, the same token in {100 * refined.same_top:.1f}\u00a0%."
        )
        short = f"auto 8-bit, {share} 16-bit, KL {refined.divergence:.4f}"
        return {keys.ACTIVATIONS: OptionMeasurement(short, sentence)}

    def notice(self, name: str) -> str:
        """Notice for a person where 16 bits are the default, or some have them."""
        if self.refined is not None:
            return (
                f"Activations have 16 bits in {100 * self.refined.share:.0f}\u00a0% of their spans with {name} unless "
                f"you choose otherwise, because 8 bits everywhere change its predictions too much (KL "
                f"{self.divergence:.4f} nats per token, the limit is {BEARABLE:g}; so it is "
                f"{self.refined.divergence:.4f}): that part of a product takes two passes instead of one."
            )
        return (
            f"Activations have 16 bits with {name} unless you choose otherwise, because 8 bits change its predictions "
            f"too much (KL {self.divergence:.4f} nats per token, the limit is {BEARABLE:g}): products take two passes "
            "instead of one, which slows down prompts most of all."
        )


def measured(
    model: CausalLM,
    files: ModelFiles,
    device: torch.device,
    packing: str,
    begun: Callable[[], None],
    cancelled: Callable[[], bool],
) -> ActivationCost | None:
    """Cost of 8-bit activations for this model, from an earlier load or measured now; None where none are quantised, or
    nothing can be measured. ``begun`` is called where it is measured. Raises :class:`LoadCancelled`."""
    if not quantises_activations(model):
        return None
    code = library.find().library
    name = fingerprint_of(files.checkpoint, str(model.dtype), packing, "" if code is None else code.set.name, _EDITION)
    known = _read()
    if name in known:
        return known[name]
    begun()
    try:
        cost = _measure(model, files, device, cancelled)
    except LoadCancelled:
        raise
    except Exception as error:  # the model can be served all the same
        _log.warning("what 8-bit activations cost %s could not be measured", files.checkpoint.path.name, exc_info=error)
        return None
    if cost is not None and name:
        _keep(name, cost)
    return cost


def _measure(
    model: CausalLM, files: ModelFiles, device: torch.device, cancelled: Callable[[], bool]
) -> ActivationCost | None:
    ids = _tokens(files)[: length_for(flops_per_row(model), files.checkpoint.config.positions.max_position)]
    if len(ids) < SHORTEST:
        return None
    numerics, linears = model.numerics, _native_linears(model)
    errors: dict[NativeLinear, Tensor] = {}

    def observe(linear: NativeLinear, x: Tensor) -> None:
        """Add up the squared scales of each span in the exact reading: its errors of 8 bits are in proportion."""
        if numerics.quantises:
            return
        largest = x.float().unflatten(1, (-1, SPAN)).abs().amax(-1).square().sum(0)
        errors[linear] = errors[linear] + largest if linear in errors else largest

    before, numerics.activations, numerics.observer = numerics.activations, LEAST_BITS, observe
    try:
        scores = _score(model, device, ids, cancelled)
        numerics.observer = None
        if not math.isfinite(scores.divergence):
            return None
        cost = ActivationCost(max(0.0, scores.divergence), scores.same_top, scores.tokens)
        if cost.bearable:
            return cost
        numerics.refines = True
        for share in SHARES:
            spans = tuple(_largest(errors.get(linear), share) for linear in linears)
            _refine(linears, spans)
            scores = _score(model, device, ids, cancelled)
            if scores.divergence <= BEARABLE:
                refined = Refined(share, max(0.0, scores.divergence), scores.same_top, spans)
                return msgspec.structs.replace(cost, refined=refined)
        _refine(linears, [b""] * len(linears))
        return cost
    finally:
        numerics.activations, numerics.observer, numerics.refines = before, None, False


def _score(model: CausalLM, device: torch.device, ids: Sequence[int], cancelled: Callable[[], bool]) -> Scores:
    """Scores of the present bits on the later half of a text. Raises :class:`LoadCancelled`."""
    exact, present, setting = readers_of(model, device, KVKind())(KeepAll())
    work = score(ids, exact, present, model.config.vocab_size, setting, skipped=len(ids) // 2)
    try:
        while True:
            if cancelled():
                raise LoadCancelled
            next(work)
    except StopIteration as end:
        scores: Scores = end.value
        return scores


def _native_linears(model: CausalLM) -> list[NativeLinear]:
    return [linear for _, linear in model.linears() if isinstance(linear, NativeLinear)]


def _largest(errors: Tensor | None, share: float) -> bytes:
    """The spans with the largest errors, as :class:`Refined` keeps them."""
    if errors is None:
        return b""
    chosen = torch.zeros(len(errors), dtype=torch.uint8)
    chosen[errors.argsort(descending=True, stable=True)[: max(1, round(share * len(errors)))]] = 1
    return np.packbits(chosen.numpy()).tobytes()


def _refine(linears: Sequence[NativeLinear], spans: Sequence[bytes]) -> None:
    for linear, chosen in zip(linears, spans, strict=True):
        bits = np.unpackbits(np.frombuffer(chosen, np.uint8), count=linear.in_features // SPAN) if chosen else None
        linear.refined = None if bits is None else torch.from_numpy(bits)


def length_for(flops: float, context: int) -> int:
    """Tokens of the conversation for a model that takes so many operations a token: the same on every load."""
    return min(context, max(SHORTEST, min(LONGEST, int(OPERATIONS / max(1.0, flops)))))


def conversation() -> list[ChatMessage]:
    """The text that comes with the program, as turns. Raises :class:`OSError` where it is not there."""
    answered = held_out_text(paths.bundled_folder() / "evaluation").answered[:_EXCHANGES]
    return [ChatMessage.of(role, text) for exchange in answered for role, text in zip(_ROLES, exchange, strict=True)]


def _tokens(files: ModelFiles) -> list[int]:
    """The conversation as a chat with the model, or as plain text where its template takes none."""
    turns = conversation()
    try:
        return prompt_ids(files.tokenizer, files.template, turns)
    except PromptError:
        return prompt_ids(files.tokenizer, files.template, "\n".join(turn.content for turn in turns))


def file() -> Path:
    """Path of the file of measurements."""
    return folders.data_place() / "activations.json"


def _read() -> dict[str, ActivationCost]:
    with contextlib.suppress(UnreadableFileError):
        return decode_file(file(), dict[str, ActivationCost], LIMIT) or {}
    return {}


def _keep(name: str, cost: ActivationCost) -> None:
    """A disk that is full or read-only keeps none: the next load measures again."""
    busy = TimeoutError("another Kvasir is writing some")
    try:
        file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock(file().with_name("activations.json.lock"), busy, 10.0):
            kept = {key: value for key, value in _read().items() if key != name} | {name: cost}
            unfinished = file().with_name("activations.json.new")
            unfinished.write_bytes(msgspec.json.encode(dict(list(kept.items())[-MOST:])))
            unfinished.replace(file())
    except OSError as error:
        _log.info("what 8-bit activations cost is not kept: %s", error)

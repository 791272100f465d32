"""Default bits of activations: 8 where a model's predictions bear it, found with the model itself.

A short conversation is read with products as exact as float32 and with activations of 8 bits; the mean KL divergence of
the predictions decides. It is kept by the model's fingerprint, so that a file is measured once on a machine.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import torch

from engine.base import folders
from engine.base.errors import LoadCancelled
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.cache.policies import KeepAll
from engine.cache.stores.kinds import KVKind
from engine.catalogue import OptionMeasurement
from engine.compute.layers.numerics import LEAST_BITS
from engine.compute.models.base import CausalLM
from engine.compute.native import library
from engine.compute.runner.perplexity import score
from engine.library import paths
from engine.loading.files import ModelFiles, fingerprint_of
from engine.loading.runners import flops_per_row, quantises_activations, readers_of
from engine.protocol import ChatMessage, keys
from engine.text.held_out import held_out_text
from engine.text.prompt import prompt_ids
from engine.text.template import PromptError

_log = logging.getLogger(__name__)

BEARABLE = 0.001
"""Nats per token: where 8 bits cost more, 16 are the default."""
ROUNDED = 16
"""The bits of activations where 8 are too few."""
LONGEST, SHORTEST = 256, 64
"""Tokens of the conversation. The predictions of its first half have little before them and are not counted."""
OPERATIONS = 2e11
"""Floating-point operations that one reading of it may take, in models whose shortest text takes no more."""
_EXCHANGES = 40
"""Questions and answers, which are more tokens than the longest text."""
_ROLES: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
MOST = 200
"""Measurements that are kept: the newest."""
LIMIT = 1 << 20
"""Bytes; a larger file is none of ours."""
_EDITION = "activations 1"
"""Edition of the measurement: results of another edition are measured again."""


class ActivationCost(msgspec.Struct, frozen=True):
    """Cost of 8-bit activations: the mean KL(exact || 8-bit) in nats per token, the share of predictions whose
    likeliest token stays the same, and the number of predictions."""

    divergence: float
    same_top: float
    predictions: int

    @property
    def bits(self) -> int:
        """The bits that activations have by default."""
        return LEAST_BITS if self.divergence <= BEARABLE else ROUNDED

    @property
    def found(self) -> Mapping[str, OptionMeasurement]:
        """Result of the measurement, for the row of the switch of activations."""
        sentence = (
            f"Measured with this model: 8-bit activations change its predictions by {self.divergence:.4f} nats per "
            f"token (KL divergence; at most {BEARABLE:g} for auto to take 8 bits), and the likeliest token is the same "
            f"in {100 * self.same_top:.1f}\u00a0% of {self.predictions} places. Auto is {self.bits}-bit here."
        )
        return {keys.ACTIVATIONS: OptionMeasurement(f"auto {self.bits}-bit, KL {self.divergence:.4f}", sentence)}

    def notice(self, name: str) -> str:
        """Notice for a person where 16 bits are the default."""
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
    numerics = model.numerics
    before, numerics.activations = numerics.activations, LEAST_BITS
    try:
        exact, present, setting = readers_of(model, device, KVKind())(KeepAll())
        work = score(ids, exact, present, model.config.vocab_size, setting, skipped=len(ids) // 2)
        while True:
            if cancelled():
                raise LoadCancelled
            next(work)
    except StopIteration as end:
        scores = end.value
    finally:
        numerics.activations = before
    if not math.isfinite(scores.divergence):
        return None
    return ActivationCost(max(0.0, scores.divergence), scores.same_top, scores.tokens)


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

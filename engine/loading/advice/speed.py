"""Expected speed of a model here: from runs of this machine, else from a trial of its first layers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import torch

from engine.base.devices import traits
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.decoding.telemetry import runs
from engine.decoding.telemetry.runs import Expected, MeasuredRate, ServedModel
from engine.formats.load import Checkpoint
from engine.formats.source import Packing
from engine.loading.advice.trial import trial
from engine.loading.memory.probe import probe
from engine.loading.runners import flops_per_row
from engine.protocol.library import DraftSpeed

_log = logging.getLogger(__name__)

TRIED = "estimated from a measurement of some layers"
"""Source of a speed that no run has told yet."""


class Speed(NamedTuple):
    """Tokens a second of one chat that decodes without speculation, and of reading a prompt; 0: not known. ``source``
    says where they come from."""

    decode: float = 0.0
    prefill: float = 0.0
    source: str = ""
    draft: DraftSpeed | None = None


def served(checkpoint: Checkpoint, model: CausalLM, device: torch.device, name: str) -> ServedModel:
    """Description under which runs of ``model``, which may be loaded or planned, are kept."""
    config = checkpoint.config
    kinds = [checkpoint.quantisation_title.partition(" with ")[0]]  # files of one label differ in what is mixed in
    kinds += ["experts"] * (config.moe is not None) + ["states"] * (config.recurrent is not None)
    read = model.bytes_read_per_step()
    return ServedModel(probe(device).name, ", ".join(kinds), name, read, flops_per_row(model))


def expect(
    checkpoint: Checkpoint, kept: ServedModel, device: torch.device, bandwidth: float, dtype: torch.dtype,
    packing: Packing, numerics: Numerics, may_try: bool = True,
) -> Speed:  # fmt: skip
    """The speed to expect. Where no run says it, a trial does, which takes seconds and is kept as one, if it may."""
    known = runs.read()
    decode, prefill = (runs.expected(what, kept, known) for what in ("decode", "prefill"))
    if decode is None and may_try and not traits(device).gpu:  # whose kernels would have to be compiled first
        tried = _tried(checkpoint, kept, device, bandwidth, dtype, packing, numerics)
        runs.add(tried)
        decode, prefill = (runs.expected(what, kept, tried) for what in ("decode", "prefill"))
    draft = runs.best_draft(kept, known)
    return Speed(
        decode=decode.value * bandwidth / kept.read if decode is not None else 0.0,
        prefill=1 / (prefill.value * kept.flops) if prefill is not None else 0.0,
        source=_source(decode or prefill),
        draft=DraftSpeed(proposer=draft.proposer, tokens_per_step=draft.value, rate=draft.rate) if draft else None,
    )


def _tried(
    checkpoint: Checkpoint, kept: ServedModel, device: torch.device, bandwidth: float, dtype: torch.dtype,
    packing: Packing, numerics: Numerics,
) -> list[MeasuredRate]:  # fmt: skip
    try:
        found = trial(checkpoint, device, dtype, packing, numerics)
    except Exception as error:  # whether it fits is told all the same
        _log.warning("%s could not be tried: %s", checkpoint.path.name, error)
        return []
    own = (kept.device, kept.format, kept.order, kept.model)
    return [
        MeasuredRate("decode", *own, kept.read / found.step / bandwidth, trial=True),
        MeasuredRate("prefill", *own, found.row / kept.flops, trial=True),
    ]


def _source(found: Expected | None) -> str:
    if found is None:
        return ""
    if found.trial:
        return TRIED
    return f"from your runs of {Path(found.model).name if found.model else 'models in this format'}"

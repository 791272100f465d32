"""Proposers that need nothing but the model: n-grams, early exit, layer skipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.compute.models.base import CausalLM
from engine.compute.runner.runner import Runner
from engine.decoding.speculation.base import Proposer
from engine.decoding.speculation.proposers.layer_choice import LayerChoice
from engine.decoding.speculation.proposers.ngram import NgramProposer
from engine.decoding.speculation.proposers.self_drafting import EarlyExitProposer, LayerSkipProposer

LEAST_LAYERS = 4
"""Models with fewer layers get no early exit and no layer skipping."""


class ProposerInputs(NamedTuple):
    """Inputs of a proposer that needs nothing but the model."""

    model: CausalLM
    runner: Runner
    eos_ids: list[int]
    layers: LayerChoice
    kv_bytes_per_token: float


def _early_exit(target: ProposerInputs) -> Proposer | None:
    model, runner, eos_ids, layers, kept = target
    if not drafts_alone(model):
        return None
    return EarlyExitProposer(runner, model, eos_ids, kept, layers.exit_layer)


def _layer_skip(target: ProposerInputs) -> Proposer | None:
    model, runner, eos_ids, layers, kept = target
    # What a layer writes that others read is never left out.
    skip = layers.skip - set(model.config.lenders)
    return LayerSkipProposer(runner, model, eos_ids, kept, skip) if drafts_alone(model) else None


def drafts_alone(model: CausalLM) -> bool:
    """Return True if some of the model's layers draft: there are enough, and none carries a state that drafts would
    move on."""
    return model.num_layers >= LEAST_LAYERS and model.config.recurrent is None


ALONE: list[Callable[[ProposerInputs], Proposer | None]] = [lambda target: NgramProposer(), _early_exit, _layer_skip]
"""Makers of proposers that need nothing but the model, None where it has none; a new one is added here."""


def described(model: CausalLM, layers: LayerChoice) -> Iterator[tuple[str, str]]:
    """Those of a model and a description of each, for display."""
    yield "n-gram", "what followed the last few tokens before"
    if drafts_alone(model):
        count = model.num_layers
        how = " (by default: no search was made)" if layers.notice else ""
        skipped = ", ".join(str(layer + 1) for layer in sorted(layers.skip)) or "none"
        yield "early exit", f"after {layers.exit_layer} of {count} layers{how}"
        yield "layer skipping", f"without layers {skipped} of {count}{how}"

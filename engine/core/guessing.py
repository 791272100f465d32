"""Who guesses ahead for a model: what lies beside it, what that takes, and the proposers made of it.

N-grams, early exit and layer skipping need nothing but the model. A draft model, Medusa heads, and an EAGLE head or the
multi-token layers of the checkpoint itself are read where they are found and fit; what is refused says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from engine import config
from engine.attention.registry import Attention
from engine.cache.store import KVStore
from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.heads import KINDS, HeadFiles, HeadKind, find_heads, kind_of, open_heads
from engine.checkpoints.source import Packing
from engine.core.commands import LoadModel
from engine.core.parts import Part, open_draft
from engine.core.runner import RunnableModel, Runner, SequenceRows
from engine.core.runners import fingerprint_of, new_runner
from engine.layers.numerics import Numerics
from engine.memory import estimate
from engine.models.base import CausalLM
from engine.models.heads.base import FeatureHead
from engine.models.heads.medusa import MedusaHeads
from engine.models.heads.mtp import MultiToken, has_mtp
from engine.models.heads.read import read_eagle
from engine.speculation.base import Proposer
from engine.speculation.draft_model import DraftModelProposer
from engine.speculation.eagle import FeatureProposer
from engine.speculation.layer_choice import LayerChoice, read_choice
from engine.speculation.medusa import MedusaProposer
from engine.speculation.ngram import NgramProposer
from engine.speculation.self_drafting import EarlyExitProposer, LayerSkipProposer

_FIRST = SequenceRows([0], 0, [1], want_logits=1)
"""One row on a page that nobody holds yet."""
LEAST_LAYERS = 4
"""Models of fewer layers do not guess with some of them."""


class Beside(NamedTuple):
    """What was found beside a model, opened but not read. ``refused``: why what the load asked for is not in use."""

    draft: Part | None
    heads: Mapping[HeadKind, HeadFiles]
    layers: LayerChoice
    refused: str = ""
    notices: tuple[str, ...] = ()

    def without_draft(self, reason: str) -> Beside:
        return self._replace(draft=None, refused=reason)


class Sizes(NamedTuple):
    """Bytes of weights, and of keys and values for each token, besides the target's."""

    weights: int = 0
    kv_per_token: float = 0.0


class Guessers(NamedTuple):
    """What was read."""

    draft: CausalLM | None = None
    medusa: MedusaHeads | None = None
    feature: FeatureHead | None = None
    notices: tuple[str, ...] = ()

    @property
    def heads(self) -> list[str]:
        """Kinds of heads, as sources of guesses."""
        return [*(("medusa",) if self.medusa is not None else ()), *((self.feature.name,) if self.feature else ())]

    def storage_size(self) -> int:
        return sum(each.storage_size() for each in (self.draft, self.medusa, self.feature) if each is not None)


def look_beside(command: LoadModel, target: Part) -> Beside:
    """Find what may guess for the model of a load. ``command.draft`` is a draft model's path, or that of heads."""
    path = target.checkpoint.path
    given = Path(command.draft) if command.draft else None
    copies = config.copies_folder()
    are_heads = given is not None and kind_of(given, copies) is not None
    draft, refused = (None, "") if are_heads else open_draft(command.draft, target.tokenizer, command.options.context)
    name = fingerprint_of(target.checkpoint)
    kept = config.heads_folder() / name if name else None
    heads: dict[HeadKind, HeadFiles] = {}
    notices: list[str] = []
    for kind in KINDS:
        place = find_heads(kind, path, given if are_heads else None, kept, copies)
        if place is None:
            continue
        try:
            heads[kind] = open_heads(place, target.checkpoint.config, copies, kind)
            notices += heads[kind].notices
        except CheckpointError as error:
            if place == given:
                refused = f"The heads cannot be used. {error}"
            else:
                notices.append(f"The heads of this model cannot be used. {error}")
    own = (path if path.is_dir() else path.parent) / "heads"
    layers = read_choice([own, *([kept] if kept is not None else [])], target.checkpoint.config.num_layers)
    if layers.refused:
        notices.append(layers.notice)
    return Beside(draft, heads, layers, refused, tuple(notices))


def sizes(beside: Beside, target: Part, dtype: torch.dtype, packing: Packing, draft_packing: Packing) -> Sizes:
    """What ``beside`` takes with a target of this dtype."""
    weights, kv = 0, 0.0
    if beside.draft is not None:
        weights += beside.draft.checkpoint.resident_bytes(dtype, draft_packing)
        kv += beside.draft.kv_bytes(dtype)
    if "medusa" in beside.heads:
        weights += beside.heads["medusa"].resident_bytes(dtype)
    if _has_feature(beside, target):
        with contextlib.suppress(CheckpointError):  # who reads it says why
            feature = _feature(beside, target, target.checkpoint.planned(dtype, packing), packing)
            if feature is not None:
                weights, kv = weights + feature.storage_size(), kv + feature.kv_bytes_per_token()
    return Sizes(weights, kv)


def read_heads(beside: Beside, target: Part, model: CausalLM, packing: Packing) -> Guessers:
    """Read the heads; what cannot be used is left out with a notice."""
    medusa: MedusaHeads | None = None
    feature: FeatureHead | None = None
    notices: list[str] = []
    try:
        medusa = MedusaHeads(beside.heads["medusa"], model) if "medusa" in beside.heads else None
    except CheckpointError as error:
        notices.append(f"The Medusa heads cannot be used. {error}")
    try:
        feature = _feature(beside, target, model, packing)
    except CheckpointError as error:
        what = "EAGLE head" if "eagle" in beside.heads else "checkpoint's multi-token layer"
        notices.append(f"The {what} cannot be used. {error}")
    for files in (target.checkpoint.files, *(each.files for each in beside.heads.values())):
        files.close()
    return Guessers(None, medusa, feature, tuple(notices))


def _feature(beside: Beside, target: Part, model: CausalLM, packing: Packing) -> FeatureHead | None:
    """The head that goes on from the target's states, on a model in memory or planned. Raises CheckpointError."""
    if not _has_feature(beside, target):
        return None
    files, checkpoint = beside.heads.get("eagle"), target.checkpoint
    if files is not None:
        return read_eagle(files.files, files.config, model)
    return MultiToken(model, checkpoint.source(model.device, model.dtype, packing, Numerics()))


def _has_feature(beside: Beside, target: Part) -> bool:
    return "eagle" in beside.heads or has_mtp(target.checkpoint.files.entries)


def assemble(
    guessers: Guessers, layers: LayerChoice, runner: Runner, model: CausalLM, eos_ids: list[int], pages: int
) -> tuple[list[Proposer], list[KVStore]]:
    """All proposers of a loaded model, and the arenas that they keep beside the target's, on its page numbers.

    ``runner`` is the target's; ``pages`` counts page 0. Whatever has weights computes once, so that the first guess
    costs what the others do: the controller goes by it.
    """
    proposers: list[Proposer] = [NgramProposer()]
    stores: list[KVStore] = []
    draft = guessers.draft
    if draft is not None:
        small = new_runner(draft, pages, model.device)
        small.forward([_FIRST])
        stores.append(small.kv)
        read, kept = draft.bytes_read_per_step(), _kv_bytes(draft)
        words, known = model.config.vocab_size, draft.config.vocab_size
        proposers.append(DraftModelProposer(small, words, eos_ids, read, kept, own_vocabulary=known))
    if model.num_layers >= LEAST_LAYERS:
        kept = _kv_bytes(model)
        proposers.append(EarlyExitProposer(runner, model, eos_ids, kept, layers.exit_layer))
        proposers.append(LayerSkipProposer(runner, model, eos_ids, kept, layers.skip))
    if guessers.medusa is not None:
        heads = guessers.medusa
        heads.forward(_nothing(model))
        proposers.append(MedusaProposer(heads, model.num_layers, heads.accuracies, eos_ids))
    if guessers.feature is not None:
        head, arena = guessers.feature, guessers.feature.new_store(pages)
        stores.append(arena)
        own = Runner(cast(RunnableModel, head), arena, Attention(head.numerics), model.device)
        own.forward([_FIRST], hidden_in=_nothing(model))
        proposers.append(FeatureProposer(head, own, eos_ids))
    return proposers, stores


def described(beside: Beside, guessers: Guessers, model: CausalLM) -> tuple[tuple[str, str], ...]:
    """Who can guess for a loaded model, and with what, for people."""
    found = [("n-gram", "what followed the last few tokens before")]
    if guessers.draft is not None and beside.draft is not None:
        found.append(("draft model", beside.draft.checkpoint.path.name))
    if model.num_layers >= LEAST_LAYERS:
        layers, count = beside.layers, model.num_layers
        how = " (by default: no search was made)" if layers.notice else ""
        skipped = ", ".join(str(layer + 1) for layer in sorted(layers.skip)) or "none"
        found.append(("early exit", f"after {layers.exit_layer} of {count} layers{how}"))
        found.append(("layer skipping", f"without layers {skipped} of {count}{how}"))
    if guessers.medusa is not None:
        found.append(("Medusa", f"{guessers.medusa.num_heads} heads, {beside.heads['medusa'].path}"))
    if guessers.feature is not None:
        files = beside.heads.get("eagle")
        found.append((guessers.feature.title, "the checkpoint's own" if files is None else str(files.path)))
    return tuple(found)


def _nothing(model: CausalLM) -> Tensor:
    """A state ``[1, hidden_size]`` of no token."""
    return torch.zeros(1, model.config.hidden_size, dtype=model.dtype, device=model.device)


def _kv_bytes(model: CausalLM) -> float:
    return estimate.kv_bytes_per_token(model.config, model.dtype)

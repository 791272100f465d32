"""Heads that draft from hidden states: those in files, of the kinds that techniques register, or the model's own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from engine.base.errors import CheckpointError
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.base import FeatureHead
from engine.compute.models.heads.mtp import MultiToken, MultiTokenLayout, layout_of
from engine.decoding.speculation.heads.features import attached
from engine.decoding.speculation.heads.files import find_heads, head_kinds, open_heads
from engine.decoding.speculation.heads.kind import HeadFiles, HeadTarget
from engine.decoding.speculation.technique import drafting
from engine.formats.load import Checkpoint
from engine.formats.source import Packing
from engine.library import paths
from engine.loading.files import ModelFiles
from engine.loading.parts.part import ModelAssembly, Need
from engine.loading.placement import DevicePlacement
from engine.loading.reading import WeightReading

OWN = "mtp"
"""Name of the proposer that multi-token layers of the checkpoint's own become."""


@dataclass(frozen=True, slots=True)
class HeadsPart:
    """``files`` by kind, opened; multi-token layers are in the target's. ``refused``: why the heads that were asked for
    are not used; ``notices``: why those of the model are not, and more, as sentences. ``heads``: what was read, by the
    names of their proposers."""

    files: Mapping[str, HeadFiles] = field(default_factory=dict)
    refused: str = ""
    notices: tuple[str, ...] = ()
    heads: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def find(cls, target: ModelFiles, given: Path | None, trained: Path | None) -> Self:
        """The heads for a model, ``given`` being those that were asked for, ``trained`` the folder of those that the
        user trained for it. What is invalid is left out."""
        copies, config = paths.copies_folder(), target.checkpoint.config
        found: dict[str, HeadFiles] = {}
        notices: list[str] = []
        refused = ""
        for kind, of in head_kinds().items():
            place = find_heads(kind, target.checkpoint.path, given, trained, copies)
            if place is None:
                continue
            try:
                found[kind] = open_heads(place, config, copies, kind)
                notices += found[kind].notices
            except CheckpointError as error:
                if place == given:
                    refused = f"{of.called} cannot be used. {error}"
                else:
                    notices.append(f"{of.called} of this model cannot be used. {error}")
        return cls(found, refused, tuple(notices))

    @property
    def names(self) -> list[str]:
        """The kinds that were read, named as sources of draft tokens."""
        return list(self.heads)

    def size(self, target: ModelFiles, place: DevicePlacement, limit: int) -> Need:
        @functools.cache
        def planned() -> CausalLM:
            model = target.checkpoint.planned(place.dtype, place.packing, place.device)
            model.kv_dtype = place.kv_dtype
            return model

        weights, kv = 0, 0.0
        for files in self.files.values():
            with contextlib.suppress(CheckpointError):  # reading gives the reason
                more, each = files.of.sizes(files, planned)
                weights, kv = weights + more, kv + each
        with contextlib.suppress(CheckpointError):
            own = self._own(target, planned, place.packing, place.device)
            if own is not None:
                weights, kv = weights + own.storage_size(), kv + own.kv_bytes_per_token()
        return Need(draft_weights=weights, kv=kv)

    def read(self, target: ModelFiles, model: CausalLM, reading: WeightReading) -> Self:
        """Read the heads; those that cannot be used are left out with a notice."""
        found: dict[str, Any] = {}
        for each in drafting():
            files = self.files.get(each.name)
            try:
                if files is not None:
                    found[each.name] = files.read(model)
                elif each.name == OWN:
                    own = self._own(target, lambda: model, reading.place.packing, model.device)
                    found |= {} if own is None else {OWN: own}
            except CheckpointError as error:
                what = "checkpoint's multi-token layer" if files is None else each.style.offer
                reading.notices.append(f"The {what} cannot be used. {error}")
        for opened in (target.checkpoint.files, *(each.files for each in self.files.values())):
            opened.close()
        return replace(self, heads=found)

    def without(self, reason: str) -> Self:
        """No heads but multi-token layers of the checkpoint's own, for this reason."""
        return replace(self, files={}, refused=reason)

    def storage_size(self) -> int:
        return sum(each.storage_size() for each in self.heads.values())

    def attach(self, made: ModelAssembly) -> None:
        target = HeadTarget(made.model, made.runner, made.files.eos_ids, made.memory.pages)
        for name, head in self.heads.items():
            files = self.files.get(name)
            proposer, store = attached(head, target) if files is None else files.of.attach(head, target)
            made.proposers.append(proposer)
            made.stores += [] if store is None else [store]
            own = (head.title, "the checkpoint's own") if files is None else files.of.described(head, files)
            made.methods.append(own)

    def _own(
        self, target: ModelFiles, model: Callable[[], CausalLM], packing: Packing, device: torch.device
    ) -> FeatureHead | None:
        """The multi-token layers, unless heads in files take their place."""
        if any(files.of.goes_on for files in self.files.values()):
            return None
        return own_layers(target.checkpoint, model, packing, device)


def own_layers(
    checkpoint: Checkpoint, model: Callable[[], CausalLM], packing: Packing, device: torch.device
) -> FeatureHead | None:
    """The multi-token layers of a checkpoint, for its ``model()`` on ``device`` or planned for it; None: it has none.

    Raises CheckpointError.
    """
    layout = multi_token_layout(checkpoint)
    if layout is None:
        return None
    target = model()
    source = checkpoint.source(target.device, target.dtype, packing, Numerics(), computing=device)
    return MultiToken(target, source, layout, checkpoint.has_tensor(layout.table))


def multi_token_layout(checkpoint: Checkpoint) -> MultiTokenLayout | None:
    """Layout of the multi-token layer, if there is one that Kvasir has.

    Nemotron's is two layers of one block each, attention and experts. (In GGUF they are one, which is left out.)
    """
    if checkpoint.config.mlp.only and not checkpoint.has_tensor("mtp.layers.0.mlp.gate.weight"):
        return None
    return layout_of(checkpoint.has_tensor, checkpoint.config.num_layers)

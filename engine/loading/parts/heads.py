"""Heads that draft from hidden states: Medusa's, an EAGLE head or multi-token layers, Gemma 4's assistant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, cast

import torch

from engine.base.errors import CheckpointError
from engine.cache.stores.store import KVStore
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.assistant import Assistant
from engine.compute.models.heads.base import FeatureHead
from engine.compute.models.heads.medusa import MedusaHeads
from engine.compute.models.heads.mtp import Layout, MultiToken, layout_of
from engine.compute.runner.runner import RunnableModel, Runner
from engine.decoding.speculation.assistant.proposer import AssistantProposer
from engine.decoding.speculation.medusa.proposer import MedusaProposer
from engine.decoding.speculation.proposers.features import FeatureProposer
from engine.formats.heads.files import KINDS, HeadFiles, HeadKind, find_heads, open_heads
from engine.formats.heads.read import read_assistant, read_eagle, read_medusa_heads
from engine.formats.load import Checkpoint
from engine.formats.source import Packing
from engine.library import paths
from engine.loading.files import ModelFiles
from engine.loading.parts.part import FIRST, Assembly, Need
from engine.loading.placement import Placement
from engine.loading.reading import Reading

_NAMES: dict[HeadKind, str] = {"medusa": "The heads", "eagle": "The heads", "assistant": "The assistant"}


@dataclass(frozen=True, slots=True)
class Heads:
    """``files`` by kind, opened; multi-token layers are in the target's. ``refused``: why the heads that were asked for
    are not used; ``notices``: why those of the model are not, and more, as sentences."""

    files: Mapping[HeadKind, HeadFiles] = field(default_factory=dict)
    refused: str = ""
    notices: tuple[str, ...] = ()
    medusa: MedusaHeads | None = None
    feature: FeatureHead | None = None
    assistant: Assistant | None = None

    @classmethod
    def find(cls, target: ModelFiles, given: Path | None, trained: Path | None) -> Self:
        """The heads for a model, ``given`` being those that were asked for, ``trained`` the folder of those that the
        user trained for it. What is invalid is left out."""
        copies, config = paths.copies_folder(), target.checkpoint.config
        found: dict[HeadKind, HeadFiles] = {}
        notices: list[str] = []
        refused = ""
        for kind in KINDS:
            place = find_heads(kind, target.checkpoint.path, given, trained, copies)
            if place is None:
                continue
            try:
                found[kind] = open_heads(place, config, copies, kind)
                notices += found[kind].notices
            except CheckpointError as error:
                if place == given:
                    refused = f"{_NAMES[kind]} cannot be used. {error}"
                else:
                    notices.append(f"{_NAMES[kind]} of this model cannot be used. {error}")
        return cls(found, refused, tuple(notices))

    @property
    def names(self) -> list[str]:
        """The kinds that were read, named as sources of draft tokens."""
        names = ["medusa"] if self.medusa is not None else []
        return names + [each.name for each in (self.feature, self.assistant) if each is not None]

    def size(self, target: ModelFiles, place: Placement, limit: int) -> Need:
        weights, kv = 0, 0.0
        if "medusa" in self.files:
            weights += self.files["medusa"].resident_bytes(place.dtype)
        own = multi_token_layout(target.checkpoint)
        if own is None and not {"eagle", "assistant"} & set(self.files):
            return Need(draft_weights=weights)
        model = target.checkpoint.planned(place.dtype, place.packing, place.device)
        model.kv_dtype = place.kv_dtype
        with contextlib.suppress(CheckpointError):  # reading gives the reason
            feature = self._feature(target, model, place.packing, place.device)
            if feature is not None:
                weights, kv = weights + feature.storage_size(), kv + feature.kv_bytes_per_token()
        with contextlib.suppress(CheckpointError):
            if "assistant" in self.files:
                weights += read_assistant(self.files["assistant"], model).storage_size()
        return Need(draft_weights=weights, kv=kv)

    def read(self, target: ModelFiles, model: CausalLM, reading: Reading) -> Self:
        """What cannot be used is left out with a notice."""
        found, files, packing = self, self.files, reading.place.packing
        with _told(reading.notices, "Medusa heads"):
            if "medusa" in files:
                found = replace(found, medusa=read_medusa_heads(files["medusa"], model))
        with _told(reading.notices, "EAGLE head" if "eagle" in files else "checkpoint's multi-token layer"):
            found = replace(found, feature=self._feature(target, model, packing, model.device))
        with _told(reading.notices, "assistant"):
            if "assistant" in files:
                found = replace(found, assistant=read_assistant(files["assistant"], model))
        for opened in (target.checkpoint.files, *(each.files for each in files.values())):
            opened.close()
        return found

    def without(self, reason: str) -> Self:
        """No heads but multi-token layers of the checkpoint's own, for this reason."""
        return replace(self, files={}, refused=reason)

    def storage_size(self) -> int:
        return sum(each.storage_size() for each in (self.medusa, self.feature, self.assistant) if each is not None)

    def attach(self, made: Assembly) -> None:
        model, eos_ids = made.model, made.files.eos_ids
        if self.medusa is not None:
            self.medusa.forward(made.no_state())
            made.proposers.append(MedusaProposer(self.medusa, model.num_layers, self.medusa.accuracies, eos_ids))
            made.methods.append(("Medusa", f"{self.medusa.num_heads} heads, {self.files['medusa'].path}"))
        if self.feature is not None:
            arena = self.feature.new_store(made.memory.pages)
            made.stores.append(arena)
            runner = _tried(self.feature, arena, made)
            made.proposers.append(FeatureProposer(self.feature, runner, eos_ids))
            files = self.files.get("eagle")
            made.methods.append((self.feature.title, "the checkpoint's own" if files is None else str(files.path)))
        if self.assistant is not None:
            runner = _tried(self.assistant, made.runner.kv, made)
            made.proposers.append(AssistantProposer(self.assistant, runner, eos_ids))
            made.methods.append(("assistant", str(self.files["assistant"].path)))

    def _feature(
        self, target: ModelFiles, model: CausalLM, packing: Packing, device: torch.device
    ) -> FeatureHead | None:
        return feature_head(self.files.get("eagle"), target.checkpoint, model, packing, device)


@contextlib.contextmanager
def _told(notices: list[str], what: str) -> Iterator[None]:
    """Leave out what is invalid, and say so."""
    try:
        yield
    except CheckpointError as error:
        notices.append(f"The {what} cannot be used. {error}")


def _tried(head: FeatureHead | Assistant, arena: KVStore, made: Assembly) -> Runner:
    """What runs a head over these arenas, after a first pass."""
    runner = Runner(cast(RunnableModel, head), arena, AttentionDispatcher(head.numerics), made.model.device)
    first = FIRST._replace(more_pages=[[1]] * (arena.num_groups - 1))
    runner.forward([first], hidden_in=made.no_state())
    return runner


def feature_head(
    eagle: HeadFiles | None, checkpoint: Checkpoint, model: CausalLM, packing: Packing, device: torch.device
) -> FeatureHead | None:
    """The EAGLE head or else multi-token layers, for a ``model`` of ``checkpoint`` on ``device`` or planned for it.

    Raises CheckpointError.
    """
    if eagle is not None:
        return read_eagle(eagle.files, eagle.config, model)
    layout = multi_token_layout(checkpoint)
    if layout is None:
        return None
    source = checkpoint.source(model.device, model.dtype, packing, Numerics(), computing=device)
    return MultiToken(model, source, layout, checkpoint.has_tensor(layout.table))


def multi_token_layout(checkpoint: Checkpoint) -> Layout | None:
    """Layout of the multi-token layer, if there is one that Kvasir has.

    Nemotron's is two layers of one block each, attention and experts. (In GGUF they are one, which is left out.)
    """
    if checkpoint.config.feed_forward and not checkpoint.has_tensor("mtp.layers.0.mlp.gate.weight"):
        return None
    return layout_of(checkpoint.has_tensor, checkpoint.config.num_layers)

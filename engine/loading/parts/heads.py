"""Heads that draft from hidden states, of the kinds that techniques register: those in files, and the model's own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from engine.base.errors import CheckpointError
from engine.compute.models.base import CausalLM
from engine.decoding.speculation.heads.files import find_heads, head_kinds, open_heads
from engine.decoding.speculation.heads.kind import HeadFiles, HeadTarget
from engine.library import paths
from engine.loading.files import ModelFiles
from engine.loading.parts.part import ModelAssembly, Need
from engine.loading.placement import DevicePlacement
from engine.loading.reading import WeightReading


@dataclass(frozen=True, slots=True)
class HeadsPart:
    """``files`` by kind, opened. ``refused``: why the heads that were asked for are not used; ``notices``: why those of
    the model are not, and more, as sentences. ``heads``: what was read, by the names of their proposers."""

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
            own = of.of_checkpoint(target.checkpoint)
            if own is not None:
                found[kind] = own
            place = None if of.own else find_heads(kind, target.checkpoint.path, given, trained, copies)
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
    def in_files(self) -> bool:
        """True if there are others than the model's own."""
        return any(not files.of.own for files in self.files.values())

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
        for files in self._used(place).values():
            with contextlib.suppress(CheckpointError):  # reading gives the reason
                more, each = files.of.sizes(files, planned)
                weights, kv = weights + more, kv + each
        return Need(draft_weights=weights, kv=kv)

    def read(self, target: ModelFiles, model: CausalLM, reading: WeightReading) -> Self:
        """Read the heads; those that cannot be used are left out with a notice."""
        found: dict[str, Any] = {}
        for name, files in self._used(reading.place).items():
            try:
                found[name] = files.read(model)
            except CheckpointError as error:
                reading.notices.append(f"The {files.of.short} cannot be used. {error}")
        for opened in (target.checkpoint.files, *(each.files for each in self.files.values())):
            opened.close()
        return replace(self, heads=found)

    def without(self, reason: str) -> Self:
        """No heads but the model's own, for this reason."""
        return replace(self, files={kind: files for kind, files in self.files.items() if files.of.own}, refused=reason)

    def storage_size(self) -> int:
        return sum(each.storage_size() for each in self.heads.values())

    def attach(self, made: ModelAssembly) -> None:
        target = HeadTarget(made.model, made.runner, made.files.eos_ids, made.memory.pages)
        for name, head in self.heads.items():
            files = self.files[name]
            proposer, store = files.of.attach(head, target)
            made.proposers.append(proposer)
            made.stores += [] if store is None else [store]
            made.methods.append(files.of.described(head, files))

    def _used(self, place: DevicePlacement) -> dict[str, HeadFiles]:
        """Those that are read, and how; the model's own layers give way to heads in files that go on as they do."""
        replaced = any(files.of.goes_on and not files.of.own for files in self.files.values())
        return {
            kind: replace(files, packing=place.packing, device=place.device)
            for kind, files in self.files.items()
            if not (files.of.own and replaced)
        }

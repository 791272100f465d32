"""Loads models: finds the parts of a load from their headers, and plans their memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import torch

from engine.base.devices import traits
from engine.cache.pool import PAGE_SIZE
from engine.compute.models.arenas import SIXTEEN_BITS, refuses
from engine.compute.native.library import find as find_native
from engine.decoding.options import EngineOptions
from engine.decoding.speculation.heads.files import kind_of
from engine.decoding.speculation.proposers.layer_choice import read_choice
from engine.formats.source import Packing
from engine.library import paths
from engine.loading.files import ModelFiles
from engine.loading.memory.probe import limit_threads
from engine.loading.model import LoadedModel, LoadFailed, LoadModel
from engine.loading.parts.draft import DraftPart
from engine.loading.parts.heads import HeadsPart
from engine.loading.parts.target import TargetPart
from engine.loading.parts.tower import TowerPart
from engine.loading.placement import DevicePlacement
from engine.loading.plan import LoadPlan, as_load_failed
from engine.protocol import DeviceName, LoadOptions


class CheckpointLoader:
    """Loads models from folders and GGUF files. ``device`` is what "auto" in a load means."""

    def __init__(self, device: DeviceName = "auto") -> None:
        """Raises `engine.compute.native.instructions.NoSuchInstructions`."""
        limit_threads()
        find_native()  # raises before anything is loaded if the CPU lacks what KVASIR_NATIVE asks for
        self._device = device

    def open(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> LoadPlan:
        """Implements :meth:`Loader.open`."""
        plan = self.find(command, options, resident)
        with as_load_failed():
            plan.size_up()
        return plan

    def find(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> LoadPlan:
        """Same as :meth:`open`, but without planning memory, so that the model need not fit."""
        with as_load_failed():
            asked = command.options
            _check(asked)
            place = DevicePlacement.choose(asked, self._device, cast(Packing, options.packing), options.kv_kind)
            files = ModelFiles.open(command.path, asked.context, options.tables_in_file)
            given = Path(command.draft) if command.draft else None
            is_heads = given is not None and kind_of(given, paths.copies_folder()) is not None
            own, trained = files.heads_folders
            draft = DraftPart.find("" if is_heads else command.draft, files.tokenizer, asked, options.tables_in_file)
            heads = HeadsPart.find(files, given if is_heads else None, trained)
            layers = read_choice([own, *([trained] if trained is not None else [])], files.checkpoint.config.num_layers)
            target, ignored = TargetPart.find(files, layers, asked.quantise, options.int8_head)
            # 16 bits, and the reason, where the model cannot have the kind of KV cache that was asked for.
            refused = refuses(files.checkpoint.config, place.kind)
            notices = (ignored or draft.ignored, *heads.notices, layers.notice if layers.refused else "")
            return LoadPlan(
                command=command,
                options=options,
                place=place._replace(kind=SIXTEEN_BITS) if refused else place,
                target=target,
                tower=TowerPart.find(files),
                draft=draft,
                heads=heads,
                credit=_held(resident, place.device),
                kind_refused=refused,
                notices=[text for text in notices if text],
            )


def _check(options: LoadOptions) -> None:
    """Refuse options that no model could be loaded with. Raises LoadFailed."""
    if options.memory is not None and not math.isfinite(options.memory):
        raise LoadFailed(
            "bad_options", f"A memory budget of {options.memory} makes no sense. Give a share up to 1, or bytes."
        )
    if options.context is not None and options.context < PAGE_SIZE:
        text = f"A context of {options.context} tokens is too short. Give {PAGE_SIZE} or more, or the model's own."
        raise LoadFailed("bad_options", text)


def _held(resident: LoadedModel | None, device: torch.device) -> int:
    """Bytes that become free when the present model is dropped; a CPU's arenas are not counted, because only pages that
    were written take memory there."""
    if resident is None or resident.device != device:
        return 0
    fit = resident.fit
    return fit.weights + fit.draft_weights + (fit.kv + fit.states if traits(device).gpu else 0)

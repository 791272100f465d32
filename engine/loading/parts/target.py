"""The model itself: its weights, its arenas, and the proposers that need nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from engine.base.devices import traits
from engine.compute.models.arenas import window_of
from engine.compute.models.base import CausalLM
from engine.decoding.options import READING_ROWS
from engine.decoding.scheduling.scheduler import MAX_DRAFT_TOKENS
from engine.decoding.speculation.proposers.layer_choice import LayerChoice
from engine.decoding.speculation.technique import ProposerInputs, drafting
from engine.loading.activations import ActivationCost, measured
from engine.loading.files import ModelFiles
from engine.loading.memory import estimate
from engine.loading.parts.part import ModelAssembly, Need
from engine.loading.placement import DevicePlacement
from engine.loading.reading import WeightReading
from engine.loading.runners import new_runner
from engine.protocol import Quantise

ROWS = READING_ROWS
"""Rows of a step that memory is reserved for; a larger step may run out of memory, which ends requests, not the engine.
"""
_LOGIT_ROWS = 64 + MAX_DRAFT_TOKENS
"""Rows of a step whose logits memory is reserved for: those of answers, and of draft tokens."""


@dataclass(frozen=True, slots=True)
class TargetPart:
    """``layers`` draft for it by early exit and layer skipping. ``more_weights``: bytes besides those that the headers
    state, of a variant whose own were not read. ``cost``: of 8-bit activations, None where none are quantised."""

    files: ModelFiles
    layers: LayerChoice
    more_weights: int = 0
    model: CausalLM | None = None
    cost: ActivationCost | None = None

    @classmethod
    def find(cls, files: ModelFiles, layers: LayerChoice, method: Quantise, int8_head: bool) -> tuple[Self, str]:
        """The target, to be quantised by ``method`` while it is loaded, or a sentence that says why it is not."""
        files, ignored = files.quantised(method)
        if int8_head:
            files = files._replace(checkpoint=files.checkpoint.with_int8_head())
        return cls(files, layers), ignored

    def size(self, place: DevicePlacement, limit: int) -> Need:
        """Bytes that it takes, for texts of up to ``limit`` tokens; its states and windows are counted apart."""
        checkpoint = self.files.checkpoint
        config, dtype, device = checkpoint.config, place.dtype, place.device
        gpu = estimate.gpu_bytes(config, dtype, limit) if traits(device).kernels else 0
        rows = limit if config.attention.bidirectional else min(ROWS, limit)  # an encoder reads a text in one step
        return Need(
            weights=checkpoint.resident_bytes(dtype, place.packing, device) + self.more_weights,
            kv=place.kv_bytes(config, False if self.window(place, limit) else None),
            working=estimate.activation_bytes(config, dtype, rows, _LOGIT_ROWS) + gpu,
        )

    def window(self, place: DevicePlacement, limit: int) -> int:
        """Tokens that layers with a window keep, where they have pages of their own, else 0: a window that no text
        outgrows spares nothing."""
        window = window_of(self.files.checkpoint.config, place.kind)
        return window if window < limit else 0

    def read(self, reading: WeightReading) -> Self:
        """Read the weights, and find the bits that activations have unless the user chose some.

        Raises :class:`CheckpointError`, and :class:`engine.base.errors.LoadCancelled`.
        """
        place, cancelled = reading.place, reading.cancelled
        model = reading.model(self.files, place.packing)
        with reading.times.of("measuring activations"):
            begun = lambda: reading.progress("measuring 8-bit activations", 1.0)  # noqa: E731
            cost = measured(model, self.files, place.device, place.packing, begun, cancelled)
        if cost is not None:
            cost.apply_to(model)
        return replace(self, model=model, cost=cost)

    def storage_size(self) -> int:
        """Bytes of weights that were read."""
        return 0 if self.model is None else self.model.storage_size()

    def attach(self, place: DevicePlacement, memory: estimate.MemoryPlan) -> ModelAssembly:
        """Arenas of what ``memory`` leaves, and the proposers that need nothing but the model."""
        model = self.model
        assert model is not None, "read comes first"
        runner = new_runner(
            model,
            memory.pages,
            place.device,
            place.kind,
            memory.recent_pages,
            memory.context,
            state_slots=memory.state_slots,
            window_pages=memory.window_pages,
        )
        made = ModelAssembly(place, memory, self.files, model, runner)
        made.run(model, runner)
        kept = estimate.kv_bytes_per_token(model.config, model.kv_dtype)
        inputs = ProposerInputs(model, runner, self.files.eos_ids, self.layers, kept)
        for each in drafting():
            if each.make is not None and (alone := each.make(inputs)) is not None:
                made.proposers.append(alone.proposer)
                made.methods.append((each.label, alone.about))
        return made

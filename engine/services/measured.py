"""Measurements of the machine and the loaded model, for all windows: memory, GPU, bandwidth, how fast it answers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from engine.decoding.telemetry import runs
from engine.decoding.telemetry.records import StepRecord
from engine.decoding.telemetry.runs import Recorder
from engine.protocol import GpuReading, MemoryByOwner, PageCounts

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel
    from engine.services.probes import MachineProbes

MEASURE_EVERY_SECONDS = 0.5
"""How long a measurement of the machine serves all windows before it is taken again."""


class MachineReading(NamedTuple):
    """Measurements of the machine: its memory, and the GPU if one computes."""

    memory: MemoryByOwner
    gpu: GpuReading | None
    taken_at: float
    """time.monotonic()"""


class Measurements:
    """All of it is called in the event loop's thread, and measures in others."""

    def __init__(self, probes: MachineProbes) -> None:
        self.probes = probes
        self.bandwidth: float | None = None
        """Bytes a second that the model's device reads; None until that is measured."""
        self._recorder: Recorder | None = None
        """Keeps how fast the loaded model is, for those who ask before they load one."""
        self._model: LoadedModel | None = None
        self._known = False
        """True if its device was measured, or is being."""
        self._last: MachineReading | None = None
        self._lock = asyncio.Lock()
        self._measuring: asyncio.Future[None] | None = None
        self._keeping: asyncio.Future[None] | None = None

    def model_changed(self, loaded: LoadedModel | None) -> None:
        """Another model is loaded, or none: what was measured of the one before does not hold."""
        self._last = self._recorder = None
        self._model, self._known = loaded, False

    def rest(self) -> None:
        """Nobody waits for an answer: write down how fast the last ones were, and measure once what the model's device
        can read."""
        if self._recorder is not None and (found := self._recorder.take()):
            self._keeping = asyncio.ensure_future(asyncio.to_thread(runs.add, found))
        if self._model is not None and not self._known:
            self._known = True
            self._measuring = asyncio.ensure_future(self._measure(self._model))

    async def settled(self) -> None:
        """Wait until nothing is measured for the loaded model."""
        if self._measuring is not None:
            await asyncio.wait([self._measuring])

    def add(self, step: StepRecord) -> None:
        """Take in a step of the loaded model."""
        if self._recorder is not None:
            self._recorder.add(step)

    async def reading(self, loaded: LoadedModel | None, pages: PageCounts) -> tuple[MachineReading, bool]:
        """The last reading, or with True a new one, with the ``pages`` in use as of now."""
        async with self._lock:
            if self._last is not None and time.monotonic() - self._last.taken_at <= MEASURE_EVERY_SECONDS:
                return self._last, False
            share = pages.share
            if share is None:
                share = pages.used / pages.total if pages.total else 0.0
            memory, gpu = await asyncio.to_thread(lambda: (self.probes.memory(loaded, share), self.probes.gpu(loaded)))
            self._last = MachineReading(memory, gpu, time.monotonic())
            return self._last, True

    async def _measure(self, loaded: LoadedModel) -> None:
        self.bandwidth = await asyncio.to_thread(self.probes.bandwidth, loaded)
        if self.bandwidth:
            recorder = await asyncio.to_thread(self.probes.recorder, loaded, self.bandwidth)
            self._recorder = recorder if loaded is self._model else None

"""Measurements that the server takes of the machine, by engine.loading.memory."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import torch

from engine.decoding.options import EngineOptions
from engine.decoding.telemetry.processor import RecentPrograms
from engine.decoding.telemetry.runs import Recorder
from engine.decoding.telemetry.why.facts import Machine
from engine.library import curated, paths
from engine.library.local import stored_models
from engine.loading.advice import recommend
from engine.loading.advice.speed import served
from engine.loading.loader import CheckpointLoader
from engine.loading.memory import nvml
from engine.loading.memory.bandwidth import MeasurementStopped, last_level_bytes, measure_bandwidth
from engine.loading.memory.estimate import OutOfMemory, size
from engine.loading.memory.nvml import Meter
from engine.loading.memory.owners import memory_by_owner
from engine.loading.memory.probe import all_devices, choose_device, described, free_bytes, probe, usable_cores
from engine.loading.model import LoadedModel, LoadFailed, LoadModel
from engine.protocol import (
    Device,
    DeviceName,
    Estimated,
    GpuReading,
    LoadOptions,
    MemoryByOwner,
    Recommended,
    Value,
)


class MachineProbes:
    """Every call may take a moment; safe from any thread."""

    def __init__(self, device: DeviceName = "auto") -> None:
        """Raises engine.loading.memory.probe.NoSuchDevice."""
        self._kind = device
        self._device = choose_device(device)
        self._lock, self._measuring = threading.Lock(), threading.Lock()
        self._stopped = threading.Event()
        self._measured_for: Callable[[], LoadedModel | None] = lambda: None
        self._most_used = 0
        self._meters: dict[torch.device, Meter] = {}
        self._programs = RecentPrograms()

    def stop(self) -> None:
        """Measure nothing more that takes long."""
        self._stopped.set()

    def device(self) -> Device:
        return probe(self._device)

    def devices(self) -> list[Device]:
        """All that a model may compute on, the CPU first; a GPU that does not answer is left out."""
        found = []
        for device in all_devices():
            with contextlib.suppress(RuntimeError):
                found.append(described(device))
        return found

    def gpu(self, loaded: LoadedModel | None) -> GpuReading | None:
        """Reading that the driver gives of the GPU that computes; None on a CPU."""
        device = self._device if loaded is None else loaded.device
        with self._lock:
            meter = self._meters.get(device)
            if meter is None:
                meter = self._meters[device] = Meter(device)
        return meter.read()

    def machine(self, loaded: LoadedModel | None) -> Machine:
        """State of the machine that may slow answers down and is not the model's."""
        device = self._device if loaded is None else loaded.device
        with self._lock:
            others = self._programs.cores()
        usable, physical = usable_cores(), psutil.cpu_count(logical=False) or usable_cores()
        logical = psutil.cpu_count() or usable
        # In a container the host's other programs need not be on the cores that are left to this one.
        others = others * min(1.0, physical / logical) if usable >= logical else 0.0
        cpu, battery = torch.device("cpu"), getattr(psutil, "sensors_battery", lambda: None)()
        return Machine(
            cores=min(usable, physical),
            threads=torch.get_num_threads(),
            others=others,
            free=free_bytes(cpu),
            total=probe(cpu).total_bytes,
            swapped=_swapped(),
            cache=last_level_bytes(),
            held=tuple(nvml.programs(device, os.getpid())),
            throttled=nvml.throttling(device),
            battery=battery is not None and battery.power_plugged is False,
            no_gpu=os.environ.get("KVASIR_GPU_PACK_REASON", ""),
        )

    def bandwidth(self, loaded: LoadedModel | None) -> float | None:
        """Bytes a second that the device reads; None if it cannot be measured now."""
        try:
            with self._measuring:  # two at once would each find half of it, and what was found first is remembered
                device = self._device if loaded is None else loaded.device
                return measure_bandwidth(device, self._stopped.is_set)
        except (RuntimeError, MemoryError, MeasurementStopped):
            return None

    @staticmethod
    def recorder(loaded: LoadedModel, bandwidth: float) -> Recorder | None:
        """Recorder of the model's speed; None for a model from another kind of loader."""
        if loaded.files is None or loaded.model is None:
            return None
        return Recorder(served(loaded.files.checkpoint, loaded.model, loaded.device, loaded.command.path), bandwidth)

    def memory(self, loaded: LoadedModel | None, used_share: float) -> MemoryByOwner:
        """``used_share`` is the share of the cache's pages in use."""
        with self._lock:
            self._programs.look()
        if loaded is None:
            return memory_by_owner(self._device, 0, 0, 0)
        fit = loaded.fit
        used = int(fit.kv * used_share)
        with self._lock:
            if loaded is not self._measured_for():
                self._measured_for, self._most_used = weakref.ref(loaded), 0
            self._most_used = max(self._most_used, used)
            touched = self._most_used
        return memory_by_owner(
            loaded.device,
            fit.weights + fit.draft_weights,
            used,
            fit.kv + fit.states - used,
            touched,
            0 if (pictures := loaded.pictures.processor) is None else pictures.kept_bytes(),
        )

    def recommended(self, loaded: LoadedModel | None, purpose: str = "") -> Recommended:
        """The models of the list for a purpose ("" for all) and those of this machine, judged for the memory that is
        there without ``loaded``."""
        listed = [each for each in curated.models(paths.models_file()) if purpose in ("", *each.purposes)]
        memory, bandwidth = probe(self._device), self.bandwidth(None) or 0.0
        fit = loaded.fit if loaded is not None else None
        held = fit.weights + fit.draft_weights + fit.kv + fit.states if fit is not None else 0
        free, total = min(memory.total_bytes, memory.free_bytes + held), memory.total_bytes
        stored = stored_models(paths.known_models(), paths.bundled_folder())
        return Recommended(
            models=recommend.recommended(listed, free, total, bandwidth, stored),
            stored={each.path: recommend.judge_stored(each, free, total, bandwidth) for each in stored},
        )

    def estimate(
        self, path: str, draft: str, options: LoadOptions, loaded: LoadedModel | None, switches: Mapping[str, Value]
    ) -> Estimated:
        """Estimate whether a model would fit in place of the loaded one, with these values of the catalogue."""
        engine_options = EngineOptions()
        engine_options.values.update(switches)
        try:
            opened = CheckpointLoader(self._kind).open(LoadModel(path, draft, options), engine_options, loaded)
        except LoadFailed as error:
            cause = error.__cause__
            known = cause.fit if isinstance(cause, OutOfMemory) else None
            return Estimated(id="", fits=False, fit=known, sentence=str(error))
        fit = opened.fit
        needed = fit.weights + fit.draft_weights + fit.kv + fit.states + fit.activations
        sentence = (
            f"Fits: {size(needed)} of the {size(fit.free)} that are free, with room for {fit.kv_tokens:,} tokens."
        )
        return Estimated(id="", fits=True, fit=fit, sentence=f"{sentence} {opened.draft_refused}".strip())


def _swapped(status: Path = Path("/proc/self/status")) -> int:
    """Bytes of this process that lie on the disk; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        for line in status.read_text().splitlines():
            if line.startswith("VmSwap:"):
                return int(line.split()[1]) << 10
    return 0

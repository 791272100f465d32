"""What happens out of sight while an engine runs: kernels that are compiled, graphs that are captured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch

from engine.compute.runner.recorders import Captured, CudaRecorder


class Capture(NamedTuple):
    """The capture of one key; ``bytes`` of the GPU's memory, its share of the pool and the driver's part."""

    seconds: float
    bytes: int


class Watch:
    """``compiled``: names of kernels in their order; ``hits`` those that Triton's cache on disk had, and ``misses``."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.hits: list[str] = []
        self.misses: list[str] = []
        self.captures: list[Capture] = []

    def figure(self) -> dict[str, Any]:
        """Of the captures."""
        seconds, sizes = ([getattr(each, name) for each in self.captures] for name in Capture._fields)
        return {
            "keys": len(self.captures),
            "seconds": _middle(seconds),
            "most seconds": max(seconds, default=None),
            "MB": _middle([size / 1e6 for size in sizes]),
            "all MB": sum(sizes) / 1e6 if sizes else None,
        }


def _middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch this process. Triton tells of a compilation by a hook, and captures are timed where they are made."""
    watch = Watch()
    record = CudaRecorder.record

    def timed(recorder: CudaRecorder, run: Callable[[], Any]) -> Captured:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # as the capture itself begins: what it gives back is not what the graph takes
        free, began = torch.cuda.mem_get_info()[0], time.perf_counter()
        captured = record(recorder, run)
        seconds = time.perf_counter() - began
        watch.captures.append(Capture(seconds, free - torch.cuda.mem_get_info()[0]))
        return captured

    def compiled(*_: object, fn: Any, **__: object) -> bool:
        watch.compiled.append(fn.name)
        return False

    def looked_up(*, src: Any, cache_hit: bool, **_: object) -> None:
        (watch.hits if cache_hit else watch.misses).append(src.name)

    with mock.patch.object(CudaRecorder, "record", timed):
        try:
            from triton import knobs
        except ImportError:  # a machine without a GPU may have none
            yield watch
            return
        hook = mock.patch.object(knobs.runtime, "jit_cache_hook", compiled)
        with hook, mock.patch.object(knobs.compilation, "listener", looked_up):
            yield watch

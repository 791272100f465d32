"""Recorders of steps: CUDA graphs, tapes of calls on a processor, and graphs whose kernels start early."""

from __future__ import annotations

import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch

from engine.base.errors import is_out_of_memory
from engine.base.host_memory import MemoryPool
from engine.compute.batch import ROW_CLASSES, ForwardOutput
from engine.compute.layers.numerics import Numerics
from engine.compute.native import early, triton_launch
from engine.compute.native.tape import Tape

_log = logging.getLogger(__name__)


class Captured(NamedTuple):
    """A graph: ``replay()`` makes its calls, whose results appear in ``out``."""

    replay: Callable[[], None]
    out: ForwardOutput
    bytes: int = 0
    """Memory of the host that it holds."""


class RecorderTraits(NamedTuple):
    """Limits of what a recorder captures, and what a capture needs."""

    most_rows: int
    """Steps of more rows are not worth a capture."""
    most_bytes: int | None
    """Memory of the host that all captures may hold together; None: they hold none of it."""
    warms: bool
    """True if what is captured has to have run before, and nothing may be moved by it."""


Forward = Callable[[], ForwardOutput]


class GraphRecorder(ABC):
    """Captures what a function launches or calls."""

    traits: RecorderTraits
    late = ""
    """Reason the last capture has no early launches; "": it has, or none were asked for."""

    @property
    def settings(self) -> tuple[int, ...]:
        """Other numbers say that everything is to be captured in another way."""
        return ()

    def capture(self, prepare: Callable[[], Forward]) -> Captured:
        """Capture a forward: ``prepare()`` makes one over a batch of its own. Raises what :meth:`record` does.

        What runs before the capture has another batch, because what is remembered of the captured one has to lie in
        the graph's memory.
        """
        if self.traits.warms:
            prepare()()
        return self.record(prepare())

    @abstractmethod
    def record(self, run: Forward) -> Captured:
        """Capture ``run()``, which launches and allocates but reads nothing from the device. Raises what CUDA does."""


class CudaRecorder(GraphRecorder):
    """Captures on one GPU; graphs share a memory pool, because no two of them run at once."""

    traits = RecorderTraits(most_rows=ROW_CLASSES[-1], most_bytes=None, warms=True)

    def __init__(self, device: torch.device) -> None:
        self._pool, self._graphs = torch.cuda.graph_pool_handle(), weakref.WeakSet[torch.cuda.CUDAGraph]()
        self._stream = torch.cuda.Stream(device)

    def record(self, run: Forward) -> Captured:
        """Implements :meth:`GraphRecorder.record`."""
        if not self._graphs:  # PyTorch takes no pool whose graphs are all gone while anything still lies in it
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._graphs.add(graph)
        # Other threads (telemetry) may ask the driver for something meanwhile, which must not end the capture.
        with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
            out = run()
        return Captured(graph.replay, out)


class TapeRecorder(GraphRecorder):
    """Records on a processor (`engine.compute.native.tape`). More rows wait for arithmetic and not for Python.

    Tapes share a memory pool, because no two of them run at once.
    """

    traits = RecorderTraits(most_rows=8, most_bytes=128 << 20, warms=False)

    def __init__(self) -> None:
        self._pool: weakref.ref[MemoryPool] | None = None
        """It goes with the last tape."""

    def record(self, run: Forward) -> Captured:
        """Implements :meth:`GraphRecorder.record`."""
        tape = Tape.of(run, None if self._pool is None else self._pool())
        self._pool = weakref.ref(tape.pool)
        return Captured(tape.replay, tape.result, tape.bytes)


class EarlyRecorder(GraphRecorder):
    """Captures as another recorder does, with early launches while the switches ask for them.

    Where a GPU has none, or a capture with them fails, the step is captured without, and :attr:`late` says why.
    """

    def __init__(self, plain: GraphRecorder, device: torch.device, switches: Numerics) -> None:
        self._plain, self._device, self._switches = plain, device, switches
        self.traits = plain.traits

    @property
    def settings(self) -> tuple[int, ...]:
        """Implements :attr:`GraphRecorder.settings`."""
        return self._switches.early, self._switches.ahead

    def capture(self, prepare: Callable[[], Forward]) -> Captured:
        """Implements :meth:`GraphRecorder.capture`."""
        self.late = (early.declines(self._device) or "") if self._switches.early else ""
        if not self._switches.early or self.late:
            return self._plain.capture(prepare)
        with triton_launch.noting() as order:
            prepare()()
        try:
            return self._plain.capture(lambda: self._early(prepare(), order))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self.late = f"a step could not be captured so ({first_line(error)})"
            _log.warning("a step could not be captured with early launches", exc_info=error)
        return self._plain.capture(prepare)

    def record(self, run: Forward) -> Captured:
        """Implements :meth:`GraphRecorder.record`."""
        return self._plain.record(run)

    def _early(self, run: Forward, order: triton_launch.Weights) -> Forward:
        """The forward with launches that are early where they may be, of kernels that multiply by these weights."""

        def launched() -> ForwardOutput:
            with triton_launch.early(order, self._switches.ahead):
                return run()

        return launched


def first_line(error: Exception) -> str:
    """The first line of an error's text, of 200 characters at most, or its type's name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]

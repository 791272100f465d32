"""Memory of the large tensors that come and go within a step: what one had, the next ones of its size get."""

from __future__ import annotations

import math
import mmap
import threading
import weakref

import torch
from torch import Tensor

from engine.base.host_memory import mapped
from engine.compute.native.tape import current

LEAST = 1 << 20
"""Bytes of the tensors that are worth it."""
LONG = 256
"""Memory that none of so many such tensors wanted goes, as soon as more is mapped."""


class _Room:
    """Memory, and a view of it that lives as long as the last tensor in it."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory, self.used = memory, 0
        self._view: weakref.ref[memoryview] | None = None

    @property
    def free(self) -> bool:
        return self._view is None or self._view() is None

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        view = memoryview(self.memory)
        self._view = weakref.ref(view)
        return torch.frombuffer(view, dtype=dtype, count=math.prod(shape)).view(shape)


class Results:
    """An allocator gives parts of what came free to small tensors, until nothing is left that is long enough: prompts
    of a 1B model in chunks of 2,048 tokens took 40 to 60 MB more with one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rooms: list[_Room] = []
        self._count = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU, not to be read before it is written. Raises MemoryError."""
        size = math.prod(shape) * dtype.itemsize
        if size < LEAST or current() is not None:  # a tape has memory of its own
            return torch.empty(shape, dtype=dtype)
        with self._lock:
            return self._take(size).tensor(shape, dtype)

    def clear(self) -> None:
        """Give back what no tensor has."""
        with self._lock:
            self._rooms = [room for room in self._rooms if not room.free]

    def _take(self, size: int) -> _Room:
        self._count += 1
        fitting = [room for room in self._rooms if room.free and size <= len(room.memory) <= 2 * size]
        if fitting:
            room = min(fitting, key=lambda room: len(room.memory))
        else:
            self._rooms = [each for each in self._rooms if not each.free or self._count - each.used < LONG]
            self._rooms.append(room := _Room(mapped(size)))
        room.used = self._count
        return room


RESULTS = Results()

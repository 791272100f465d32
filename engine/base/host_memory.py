"""Memory of the host that is mapped from the system: it takes room only as it is written.

An allocator's memory may be what others used before, in pages of 4 KB. Matrices are read whole at every token, and a
processor finds its way through 4 KB pages half as fast as through those of 2 MB.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
import threading
import weakref

import torch
from torch import Tensor

HUGE_PAGE = 2 << 20
SLAB_BYTES = 128 << 20
"""Tensors that are held for long share mappings of this size or of their own, if that is larger."""
_ALIGNMENT = 64


def mapped(size: int) -> mmap.mmap:
    """``size`` bytes, all zero. Raises MemoryError."""
    flags = {} if os.name == "nt" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    try:
        return mmap.mmap(-1, size, **flags)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes of memory could not be mapped") from error


def trim_heap() -> None:
    """Give freed memory back to the system: glibc keeps it in its arenas otherwise, and it counts as the process's."""
    RESULTS.clear()
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)


class Slabs:
    """Hands out tensors that stand side by side on pages of 2 MB: alone, each would leave a part of its last one empty.

    A slab goes when the last of its tensors does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slab: weakref.ref[mmap.mmap] | None = None
        self._place = self._end = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU, not to be read before it is written. Raises MemoryError."""
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        size = -(-count * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        with self._lock:
            slab = None if self._slab is None else self._slab()
            if slab is None or self._place + size > self._end:
                slab = mapped(max(SLAB_BYTES, size) + HUGE_PAGE)
                if hasattr(mmap, "MADV_HUGEPAGE"):
                    with contextlib.suppress(OSError):  # a kernel without them
                        slab.madvise(mmap.MADV_HUGEPAGE)
                self._slab = weakref.ref(slab)
                self._place = -torch.frombuffer(slab, dtype=torch.uint8).data_ptr() % HUGE_PAGE
                self._end = len(slab)
            place, self._place = self._place, self._place + size
            return torch.frombuffer(slab, dtype=dtype, count=count, offset=place).view(shape)


class _Buffer:
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


class MemoryPool:
    """Hands out tensors that come and go within a step, in the memory of those that went: what they take stays mapped.

    An allocator gives parts of what came free to small tensors, until nothing is left that is long enough: prompts of a
    1B model in chunks of 2,048 tokens took 40 to 60 MB more with one.
    """

    def __init__(self, unwanted: int | None = None) -> None:
        """Memory goes that none of the last ``unwanted`` tensors wanted, as soon as more is mapped; None: never."""
        self._unwanted = unwanted
        self._lock = threading.Lock()
        self._buffers: list[_Buffer] = []
        self._count = 0

    @property
    def held(self) -> int:
        """Bytes that tensors have now."""
        return sum(len(buffer.memory) for buffer in self._buffers if not buffer.free)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU, not to be read before it is written. Raises MemoryError."""
        if not (size := math.prod(shape) * dtype.itemsize):
            return torch.empty(shape, dtype=dtype)
        with self._lock:
            self._count += 1
            fitting = [buffer for buffer in self._buffers if size <= len(buffer.memory) <= 2 * size and buffer.free]
            if fitting:
                buffer = min(fitting, key=lambda buffer: len(buffer.memory))
            else:
                self._buffers = [each for each in self._buffers if not self._goes(each)]
                self._buffers.append(buffer := _Buffer(mapped(size)))
            buffer.used = self._count
            return buffer.tensor(shape, dtype)

    def clear(self) -> None:
        """Give back what no tensor has."""
        with self._lock:
            self._buffers = [buffer for buffer in self._buffers if not buffer.free]

    def _goes(self, buffer: _Buffer) -> bool:
        return self._unwanted is not None and buffer.free and self._count - buffer.used >= self._unwanted


WEIGHTS = Slabs()
RESULTS = MemoryPool(unwanted=256)

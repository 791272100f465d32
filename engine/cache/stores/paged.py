"""Base class of all stores: arenas of numbered pages that are copied, and moved to and from host memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.base.host_memory import mapped
from engine.cache.stores.transfer import PageTransfer

CLEARED = 64
"""Pages that are cleared at once: an arena may be as large as the host's memory."""


class PagedStore:
    """Arenas of pages that can be copied, and moved to and from host memory (`engine.cache.types.Tier`)."""

    def __init__(self, pages: int, arenas: list[Tensor]) -> None:
        self.pages, self._arenas = pages, arenas
        self._transfer = PageTransfer(arenas, pages)
        self.device = self._transfer.device
        """Device of the arenas."""
        self.page_bytes = self._transfer.page_bytes
        """Bytes of an exported page."""
        self.page_layout = self._transfer.layout
        """Layout of these bytes, in words: pages travel between stores that agree in it, in kind and in model."""

    def copy_page(self, src: int, dst: int) -> None:
        """Copy one page in every layer."""
        for arena in self._arenas:
            rows = arena.shape[0] // self.pages
            arena.narrow(0, dst * rows, rows).copy_(arena.narrow(0, src * rows, rows))

    def export_pages(self, pages: Sequence[int], out: Tensor | None = None) -> Tensor:
        """The content of the pages, on the host: uint8 [n, page_bytes], in `out` if given. Ready when it returns.

        Of each page each arena's part: of keys and values each layer's keys, then values.
        """
        return self._transfer.export(pages, out)

    def import_pages(self, pages: Sequence[int], data: Tensor) -> None:
        """Write what `export_pages` gave to the pages (other numbers, the same count).

        Raises ValueError if it is of another shape.
        """
        self._transfer.import_(pages, data)

    def clear_pages(self, pages: Sequence[int]) -> None:
        """Write zeros to the pages."""
        for first in range(0, len(pages), CLEARED):
            some = pages[first : first + CLEARED]
            self.import_pages(some, torch.zeros((len(some), self.page_bytes), dtype=torch.uint8))

    def storage_size(self) -> int:
        """Bytes that the arenas hold."""
        return sum(arena.numel() * arena.element_size() for arena in self._arenas)


def new_arena(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, because attention may read a slot that is masked but was never written, and 0 * NaN is NaN.

    On a CPU they are a mapping of the operating system's zero pages: an arena takes memory only as it is written, and
    gives it back when it goes. (The allocator's zeros may be memory of its own, written to be empty and kept for ever.)
    Pages of 2 MB would make attention to long texts a twentieth faster, and each arena larger by most of one: none are
    asked for, and a system that gives them to all memory is not contradicted.
    Raises MemoryError where there is no room.
    """
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or not size:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.frombuffer(mapped(size), dtype=dtype).view(shape)

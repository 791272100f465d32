"""Whole pages between a store's arenas and host memory: what swapping, saving and moving to another store go through.

A page travels as bytes: its part of every arena, in the order of the arenas, one page after another. So pages can be
cut, joined and checked without knowing what a store keeps, and any kind of store can be moved by the same code.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.base.devices import traits

STAGING_BYTES = 32 << 20
"""Bytes of pages that are gathered on a GPU and copied over the link at a time. A power of two, see `host_cost`."""
_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


def on_device(device: torch.device, values: list[int] | np.ndarray) -> Tensor:
    """A tensor of the values; for CUDA out of pinned memory, because a copy from any other waits for the device."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if traits(device).pinned else tensor.to(device)


class PageTransfer:
    """Moves pages of arenas [pages, ...], of any dtypes, on one device."""

    def __init__(self, arenas: Sequence[Tensor], pages: int) -> None:
        """Each arena is contiguous and holds `pages` pages in order."""
        rows = [arena.view(pages, -1).view(torch.uint8) for arena in arenas]
        self.device = arenas[0].device
        self._direct, self._pinned = self.device.type == "cpu", traits(self.device).pinned
        """``_direct``: pages are copied between the arenas and the host's buffer, with nothing between."""
        self.page_bytes = sum(row.shape[1] for row in rows)
        """Bytes of a page in all arenas."""
        shapes = (f"{str(arena.dtype)[6:]}{[arena.shape[0] // pages, *arena.shape[1:]]}" for arena in arenas)
        counted = [(shape, len(list(same))) for shape, same in itertools.groupby(shapes)]
        self.layout = "; ".join(f"{count} x {shape}" for shape, count in counted)
        """Layout of a page's bytes: stores that agree in it, in kind and in model can exchange pages."""
        # Few wide elements are moved faster than many bytes.
        word = next(kind for kind in _WORDS if all(row.shape[1] % kind.itemsize == 0 for row in rows))
        self._rows = [row.view(word) for row in rows]
        self._word, self._widths = word, [row.shape[1] for row in self._rows]

    def export(self, pages: Sequence[int], out: Tensor | None = None) -> Tensor:
        """The pages as uint8 [n, page_bytes] on the host; in `out`, if given, else in new memory (pinned for a GPU).

        Ready when it returns. Raises ValueError if `out` has another shape.
        """
        if out is None:
            out = host_buffer(len(pages), self.page_bytes, self._pinned)
        self._expect(out, len(pages))
        if not pages:
            return out
        words, index = out.view(self._word), self._index(pages)
        if self._direct:
            for row, part in zip(self._rows, words.split(self._widths, dim=1), strict=True):
                torch.index_select(row, 0, index, out=part)
            return out
        for start, stop in self._stages(len(pages)):
            staging = torch.cat([row.index_select(0, index[start:stop]) for row in self._rows], dim=1)
            # Copies follow each other on the stream, so to wait for the last one is to wait for all.
            words[start:stop].copy_(staging, non_blocking=self._pinned and stop < len(pages))
        return out

    def import_(self, pages: Sequence[int], data: Tensor) -> None:
        """Write what `export` gave to the pages; `data` may be overwritten as soon as it returns.

        Raises ValueError if there is another count of pages in it, or it is of other pages.
        """
        self._expect(data, len(pages))
        if not pages:
            return
        words = data.view(self._word)
        if self._direct:  # by NumPy, whose assignment to rows is twice as fast as torch's
            places = np.array(pages, dtype=np.int64)
            for row, part in zip(self._rows, words.split(self._widths, dim=1), strict=True):
                row.numpy()[places] = part.numpy()
            return
        index = self._index(pages)
        for start, stop in self._stages(len(pages)):
            staging = words[start:stop].to(self.device, non_blocking=self._pinned and stop < len(pages))
            for row, part in zip(self._rows, staging.split(self._widths, dim=1), strict=True):
                row.index_copy_(0, index[start:stop], part)

    def _stages(self, count: int) -> list[tuple[int, int]]:
        step = pages_per_stage(self.page_bytes)
        return [(start, min(count, start + step)) for start in range(0, count, step)]

    def _index(self, pages: Sequence[int]) -> Tensor:
        return torch.tensor(list(pages), dtype=torch.int64, device=self.device)

    def _expect(self, data: Tensor, count: int) -> None:
        if data.dtype != torch.uint8 or tuple(data.shape) != (count, self.page_bytes):
            raise ValueError(
                f"exported pages have the shape {tuple(data.shape)} of {data.dtype}, not "
                f"{(count, self.page_bytes)} of bytes"
            )


def pages_per_stage(page_bytes: int) -> int:
    """Pages that are moved at a time."""
    return max(1, STAGING_BYTES // page_bytes)


def host_buffer(pages: int, page_bytes: int, pinned: bool) -> Tensor:
    """Uninitialised uint8 [pages, page_bytes] on the host. Raises RuntimeError or MemoryError where there is no room.

    Memory that is not pinned comes from NumPy, which asks for huge pages: first writes to it are several times faster.
    """
    if pinned:
        return torch.empty((pages, page_bytes), dtype=torch.uint8, pin_memory=True)
    return torch.from_numpy(np.empty((pages, page_bytes), dtype=np.uint8))


def host_cost(pages: int, page_bytes: int, pinned: bool) -> int:
    """Bytes that `host_buffer` takes: PyTorch hands out pinned memory in powers of two."""
    size = pages * page_bytes
    return 1 << (size - 1).bit_length() if pinned and size else size

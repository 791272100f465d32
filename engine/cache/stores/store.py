"""Key and value arenas: where the tokens named by page numbers live."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import Flush, PackedKV, PageTables, Placement
from engine.cache.stores.transfer import PageTransfer


class KVStore:
    """Keys (rotated) and values of every layer, addressed by slot = page * 16 + index % 16.

    A sequence owns its length: there is nothing to truncate here, a stale slot is overwritten when it is written again.
    In each arena a page is a run of memory, and mostly [pages * 16, H_kv, d]. The methods are about group 0, but for
    `write` and for `move_slots`, which moves rows of the present step.
    """

    num_groups = 1
    """Layer groups of a batch that it addresses: 1, or 2 where recent tokens have pages of their own."""
    residual = 0
    """Tokens at the end of a sequence that are not packed yet (`engine.cache.stores.recent`); 0: every token is."""
    ranks_pages = False
    """Whether rows may choose pages by bounds of their keys (QUEST); then it wants `Placement.pages`."""
    recent: KVStore | None = None
    """Holds the tokens that are not packed yet, under the page numbers of group 1."""

    def __init__(self, pages: int, arenas: list[Tensor], views: list[PackedKV]) -> None:
        self.layers, self.pages = len(views), pages
        self._arenas, self._views = arenas, views
        self._transfer = PageTransfer(arenas, pages)
        self.device = self._transfer.device
        """Where the arenas are."""
        self.page_bytes = self._transfer.page_bytes
        """Bytes of an exported page."""
        self.page_layout = self._transfer.layout
        """What they are, in words: pages travel between stores that agree in it, in kind and in model."""

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement) -> None:
        """Store k [T, H_kv, d_k] and v [T, H_kv, d_v] of a step's rows (`batch.placement`)."""
        raise NotImplementedError

    def packs(self, starts: Sequence[int], rows: Sequence[int], tables: PageTables) -> Flush | None:
        """What is packed in a step that writes `rows[s]` rows from index `starts[s]` on; None if nothing is.

        `tables[g][s]` are the pages of sequence s in group g. What most stores pack at all is packed as it is written.
        """
        return None

    def packed_until(self, index: np.ndarray) -> np.ndarray | None:
        """[T] int64: how many tokens of its sequence a row of each index [T] reads packed; None: rows read one kind."""
        return None

    def view(self, layer: int) -> PackedKV:
        """The arenas of one layer."""
        return self._views[layer]

    def move_slots(self, src: Tensor, dst: Tensor) -> None:
        """Copy slot src[i] to dst[i] in every layer, as if all reads came before all writes (compacts a tree)."""
        for arena in self._arenas:
            arena.index_copy_(0, dst, arena.index_select(0, src))

    def copy_page(self, src: int, dst: int) -> None:
        """Copy one page in every layer."""
        for arena in self._arenas:
            rows = arena.shape[0] // self.pages
            arena.narrow(0, dst * rows, rows).copy_(arena.narrow(0, src * rows, rows))

    def export_pages(self, pages: Sequence[int], out: Tensor | None = None) -> Tensor:
        """The content of the pages, on the host: uint8 [n, page_bytes], in `out` if given. Ready when it returns.

        Of each page each layer's keys, then values.
        """
        return self._transfer.export(pages, out)

    def import_pages(self, pages: Sequence[int], data: Tensor) -> None:
        """Write what `export_pages` gave to the pages (other numbers, the same count).

        Raises ValueError if it is of another shape.
        """
        self._transfer.import_(pages, data)

    def bytes_per_token(self) -> float:
        """Bytes of one token in all layers, keys and values, scales included, `recent` not."""
        return self.storage_size() / (self.pages * PAGE_SIZE)

    def storage_size(self) -> int:
        """Bytes that the arenas hold, those of `recent` included."""
        return sum(arena.numel() * arena.element_size() for arena in self._arenas)


class DenseKVStore(KVStore):
    """Arenas of numbers, to which a model's are rounded: one pair [pages * 16, H_kv, d] for each layer."""

    def __init__(
        self,
        layers: int,
        pages: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        v_head_dim: int | None = None,
    ) -> None:
        """`pages` counts page 0, which belongs to nobody and takes the writes of padding rows."""
        widths = (head_dim, head_dim if v_head_dim is None else v_head_dim)
        arenas = [
            new_arena((pages * PAGE_SIZE, kv_heads, width), dtype, torch.device(device))
            for _ in range(layers)
            for width in widths
        ]
        pairs = zip(arenas[::2], arenas[1::2], strict=True)
        super().__init__(pages, arenas, [PackedKV(k, v) for k, v in pairs])

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement) -> None:
        """See `KVStore.write`."""
        arenas = self._views[layer]
        _store(arenas.k, k, to)
        _store(arenas.v, v, to)


class LatentKVStore(KVStore):
    """What multi-head latent attention keeps: one arena [pages * 16, 1, rank + rope] for each layer.

    A key is a token's latent, then the rotated key that all heads share; its value is the latent again, so there is
    no second arena: values are the first `rank` columns of the keys (DeepSeek-V2, arXiv 2405.04434, section 2.1).
    """

    def __init__(
        self, layers: int, pages: int, rank: int, rope: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        """`pages` counts page 0, as in `DenseKVStore`."""
        shape = (pages * PAGE_SIZE, 1, rank + rope)
        arenas = [new_arena(shape, dtype, torch.device(device)) for _ in range(layers)]
        super().__init__(pages, arenas, [PackedKV(k, k[..., :rank], "latent") for k in arenas])

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement) -> None:
        """See `KVStore.write`; `v` is what `k` begins with, and is not looked at."""
        _store(self._arenas[layer], k, to)


def _store(arena: Tensor, rows: Tensor, to: Placement) -> None:
    if to.first_slot[0] >= 0:
        arena.narrow(0, to.first_slot[0], rows.shape[0]).copy_(rows)
    else:
        arena.index_copy_(0, to.slots[0], rows.to(arena.dtype))


HUGE_PAGES_FROM = 64 << 20
"""Bytes of an arena whose reads gain more from pages of 2 MB than their empty rest costs."""


def new_arena(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, because attention may read a slot that is masked but was never written, and 0 * NaN is NaN.

    On a CPU they are a mapping of the operating system's zero pages: an arena takes memory only as it is written, and
    gives it back when it goes. (The allocator's zeros may be memory of its own, written to be empty and kept for ever.)
    Raises MemoryError where there is no room.
    """
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or not size:
        return torch.zeros(shape, dtype=dtype, device=device)
    flags = {} if os.name == "nt" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    try:
        memory = mmap.mmap(-1, size, **flags)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes of cache could not be mapped") from error
    if size >= HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)

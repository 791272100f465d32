"""Pages gathered one behind the other, for kernels that know nothing of pages."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.codecs import unpack_pages
from engine.cache.stores.packed import PACKED_KINDS, PackedKV
from engine.compute.native.library import DTYPES, find

CONVERTED_PAGES = 16
"""Pages that are copied before they are converted: so few that they stay in the processor's cache."""


class Scratch:
    """Memory for gathered pages, kept from call to call: fresh megabytes would cost more than the copy into them."""

    def __init__(self) -> None:
        self._k, self._v = torch.empty(0), torch.empty(0)
        self._library, _ = find()

    def gather(self, kv: PackedKV, pages: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Whole pages in order, keys and values [pages * 16, H_kv, d] each; valid until the next call.

        They become numbers of ``dtype``, whatever they were.
        """
        if kv.kind in PACKED_KINDS:
            return self._natively(kv, pages, dtype) if self._serves(kv, dtype) else unpack_pages(kv, pages, dtype)
        self._k, k = _gather_into(self._k, kv.k, pages, dtype)
        if kv.v is kv.k:
            return k, k
        self._v, v = _gather_into(self._v, kv.v, pages, dtype)
        return k, v

    def _serves(self, kv: PackedKV, dtype: torch.dtype) -> bool:
        """Return True if native code unpacks these pages (`Library.unpack_pages`)."""
        fits = all(width % 32 == 0 and width <= 256 for width in (kv.k_dim, kv.v_dim))
        return self._library is not None and fits and dtype in DTYPES and kv.k.device.type == "cpu"

    def _natively(self, kv: PackedKV, pages: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Same as `engine.cache.stores.codecs.unpack_pages`, by native code into scratch buffers."""
        assert self._library is not None, "see _serves"
        slots = pages.shape[0] * PAGE_SIZE
        self._k, k = _room(self._k, (slots, kv.kv_heads, kv.k_dim), dtype, pages.device)
        self._v, v = _room(self._v, (slots, kv.kv_heads, kv.v_dim), dtype, pages.device)
        whole = pages.shape[0] - pages.shape[0] % pages_for(kv.granule)
        self._library.unpack_pages(kv, pages[:whole].int().contiguous(), k, v)
        for part in (k, v):
            part[whole * PAGE_SIZE :] = 0  # without its pair a page is not packed yet
        return k, v


def _room(memory: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The memory or larger memory, and its beginning in a shape."""
    n = math.prod(shape)
    if memory.numel() < n or memory.dtype != dtype or memory.device != device:
        memory = torch.empty(2 * n, dtype=dtype, device=device)
    return memory, memory[:n].view(shape)


def _gather_into(memory: Tensor, arena: Tensor, pages: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The pages of an arena, copied into the memory or into larger memory; returns that memory and the pages."""
    slots, heads, width = arena.shape
    page = PAGE_SIZE * heads * width
    shape = (page,) if arena.is_contiguous() else (PAGE_SIZE, heads, width)
    memory, taken = _room(memory, (pages.shape[0], *shape), dtype, arena.device)
    source = arena.view(slots // PAGE_SIZE, *shape)
    if dtype == arena.dtype:
        torch.index_select(source, 0, pages, out=taken)
    else:
        for some, part in zip(pages.split(CONVERTED_PAGES), taken.split(CONVERTED_PAGES), strict=True):
            part.copy_(source.index_select(0, some))
    return memory, taken.view(-1, heads, width)

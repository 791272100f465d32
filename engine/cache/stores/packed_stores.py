"""Arenas of packed keys and values. There is no full-precision copy: attention reads codes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.codecs import PackedCodes, pack_absmax, pack_along_channels
from engine.cache.stores.packed import BYTE_KINDS, PackedKV, Placement, value_group
from engine.cache.stores.paged import new_arena
from engine.cache.stores.store import KVStore, NativeRows


class TokenPackedStore(KVStore):
    """Each token packed by itself as it is written, kinds "int8", "fp8" and "int4" of `PackedKV`."""

    written_by_kernels = True

    def __init__(
        self,
        kind: str,
        shapes: Sequence[tuple[int, int]],
        pages: int,
        device: torch.device | str = "cpu",
        hadamard: bool = False,
    ) -> None:
        """`shapes` and `pages` are those of `DenseKVStore`; see `KVStore.hadamard`."""
        self._kind, by_bytes = kind, kind in BYTE_KINDS
        bits = 8 if by_bytes else 4
        slots, place = pages * PAGE_SIZE, torch.device(device)
        codes = torch.int8 if by_bytes else torch.uint8
        arenas: list[Tensor] = []
        views = []
        for heads, width in shapes:
            meta = (slots, heads) if by_bytes else (slots, heads, width // value_group(width), 2)
            k, v = (new_arena((slots, heads, width * bits // 8), codes, place) for _ in range(2))
            k_meta, v_meta = (new_arena(meta, torch.float16, place) for _ in range(2))
            arenas += (k, v, k_meta, v_meta)
            views.append(PackedKV(k, v, kind, k_meta, v_meta, bits, bits))
        super().__init__(pages, arenas, views)
        if kind == "fp8":
            self.page_layout += ", float8"
        if hadamard:
            self.hadamard, self.page_layout = True, f"{self.page_layout}, mixed keys"

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Implements `KVStore.write`."""
        kv = self._views[layer]
        assert kv.k_meta is not None
        assert kv.v_meta is not None
        put(kv.k, kv.k_meta, self._pack(k), to.slots[0])
        put(kv.v, kv.v_meta, self._pack(v), to.slots[0])

    def _pack(self, x: Tensor) -> PackedCodes:
        return pack_absmax(x, self._kind) if self._kind in BYTE_KINDS else pack_along_channels(x, 4)


def put(codes: Tensor, meta: Tensor, packed: PackedCodes, slots: Tensor) -> None:
    """Store codes and scales [N] in the slots [N] of arenas."""
    codes.index_copy_(0, slots, packed.codes)
    meta.index_copy_(0, slots, packed.meta)

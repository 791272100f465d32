"""Arenas of KIVI: keys packed along tokens, values along channels, recent tokens as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE, slots_of
from engine.cache.stores.codecs import pack_along_channels, pack_along_tokens
from engine.cache.stores.kinds import Arenas, KVKind
from engine.cache.stores.packed import Flush, PackedKV, PageTables, Placement, value_group
from engine.cache.stores.packed_stores import put
from engine.cache.stores.paged import new_arena
from engine.cache.stores.recent import packed_until_rows, to_pack
from engine.cache.stores.store import DenseKVStore, KVStore, NativeRows
from engine.cache.stores.transfer import on_device


class RecentLayers(NamedTuple):
    """A store of recent tokens, of more layers than one store packs: `places` are those of its layers."""

    store: DenseKVStore
    places: Sequence[int]


class KiviStore(KVStore):
    """Keys packed along tokens, values along channels, the last tokens as they are: kind "kivi" of `PackedKV`.

    Rows are written to `recent`, whose pages are those of the batch's group 1, and packed from there in whole groups
    of 32 tokens once R tokens follow them (`Placement.flush`; Liu et al. 2024, KIVI, arXiv 2402.02750). A group is
    packed from the numbers that were computed, never from unpacked ones, so packing it again gives the same bytes.
    """

    num_groups = 2
    written_by_kernels = True
    recent: DenseKVStore

    def __init__(
        self,
        kind: KVKind,
        shapes: Sequence[tuple[int, int]],
        pages: int,
        recent_pages: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        beside: RecentLayers | None = None,
    ) -> None:
        """`shapes` are those of `DenseKVStore`; `pages` and `recent_pages` each count a page 0.

        `dtype` is that of the recent tokens. They are `beside`, if given, with those of other layers.
        """
        self.residual = kind.residual
        self._shares = beside is not None
        if beside is None:
            beside = RecentLayers(DenseKVStore(shapes, recent_pages, dtype, device), range(len(shapes)))
        self.recent, self._places = beside
        slots, place = pages * PAGE_SIZE, torch.device(device)
        arenas: list[Tensor] = []
        views = []
        for layer, (heads, width) in enumerate(shapes):
            k = new_arena((slots, heads, width * kind.key_bits // 8), torch.uint8, place)
            k_meta = new_arena((pages, heads, width), torch.float16, place)
            v = new_arena((slots, heads, width * kind.value_bits // 8), torch.uint8, place)
            v_meta = new_arena((slots, heads, width // value_group(width), 2), torch.float16, place)
            arenas += (k, v, k_meta, v_meta)
            recent = self.recent.view(self._places[layer])
            views.append(PackedKV(k, v, "kivi", k_meta, v_meta, kind.key_bits, kind.value_bits, recent))
        super().__init__(pages, arenas, views)

    @classmethod
    def of(cls, arenas: Arenas) -> KiviStore:
        """The store of these arenas' layers."""
        beside = None if arenas.beside is None else RecentLayers(arenas.beside, arenas.layers)
        return cls(arenas.kind, *arenas.shape, arenas.recent_pages, arenas.dtype, arenas.device, beside)

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Implements `KVStore.write`."""
        self.recent.write(self._places[layer], k, v, Placement(to.slots[1:], to.first_slot[1:]), native)
        if to.flush is None:
            return
        source, pages, _ = to.flush
        kv = self._views[layer]
        assert kv.recent is not None
        assert kv.k_meta is not None
        assert kv.v_meta is not None
        slots = (pages[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE, device=pages.device)).flatten()
        keys = pack_along_tokens(kv.recent.k.index_select(0, source), kv.k_bits)
        kv.k.index_copy_(0, slots, keys.codes)
        kv.k_meta.index_copy_(0, pages, keys.meta)
        put(kv.v, kv.v_meta, pack_along_channels(kv.recent.v.index_select(0, source), kv.v_bits), slots)

    def packs(self, starts: Sequence[int], rows: Sequence[int], tables: PageTables) -> Flush | None:
        """Implements `KVStore.packs`."""
        source: list[int] = []
        pages: list[int] = []
        for start, count, packed, recent in zip(starts, rows, *tables, strict=True):
            tokens = to_pack(start, count, self.residual)
            source += slots_of(recent, tokens).tolist()
            pages += packed[tokens.start // PAGE_SIZE : tokens.stop // PAGE_SIZE]
        return Flush(on_device(self.device, source), on_device(self.device, pages)) if pages else None

    def packed_until(self, index: np.ndarray) -> np.ndarray | None:
        """Implements `KVStore.packed_until`; a row of a drafted tree stands for the end of its path."""
        return packed_until_rows(index, self.residual)

    def move_slots(self, src: Tensor, dst: Tensor, group: int = 0) -> None:
        """Implements `KVStore.move_slots`: the rows of a step are recent, so these are slots of group 1."""
        self.recent.move_slots(src, dst)

    def bytes_per_token(self) -> float:
        """Implements `KVStore.bytes_per_token`."""
        return super().storage_size() / (self.pages * PAGE_SIZE)

    def storage_size(self) -> int:
        """Implements `PagedStore.storage_size`: the recent store included, unless it is others' too."""
        return super().storage_size() + (0 if self._shares else self.recent.storage_size())

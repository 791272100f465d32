"""Key and value arenas: where the tokens named by page numbers live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.slots import WindowSlots
from engine.cache.stores.packed import Flush, PackedKV, PageTables, Placement
from engine.cache.stores.paged import PagedStore, new_arena
from engine.cache.stores.states import StateStore


class NativeRows(Protocol):
    """Native code that copies a step's rows (`engine.compute.native.library.NativeLibrary`)."""

    def store_rows(self, k: Tensor, v: Tensor, kv: PackedKV, slots: Tensor) -> bool:
        """Write ``k [T, H, d_k]`` and ``v [T, H, d_v]`` to ``slots [T]`` int64 of dense arenas; False: nothing was
        written, because they do not lie as there."""


class KVStore(PagedStore):
    """Keys (rotated) and values of every layer, addressed by slot = page * 16 + index % 16.

    A sequence owns its length: there is nothing to truncate here, a stale slot is overwritten when it is written again.
    In each arena a page is a run of memory, and mostly [pages * 16, H_kv, d]. The methods are about group 0, but for
    `write` and for `move_slots`, which moves rows of the present step in one of the `written_groups`.
    """

    num_groups = 1
    """Layer groups of a batch that it addresses: 1, and one more each where recent tokens, and layers with a window,
    have pages of their own."""
    written_groups = 1
    """Number of the first ones of these, which rows are written to and in which `move_slots` moves them."""
    residual = 0
    """Tokens at the end of a sequence that are not packed yet (`engine.cache.stores.recent`); 0: every token is."""
    ranks_pages = False
    """True if rows may choose pages by bounds of their keys; then it wants `Placement.pages`."""
    hadamard = False
    """True if the keys that it is given are to be mixed (`engine.compute.layers.hadamard`), and so queries too."""
    written_by_kernels = False
    """True if kernels may write a step's rows to the arenas as `write` does. A class whose `write` is another says it
    anew."""
    recent: KVStore | None = None
    """Holds the tokens that are not packed yet, under the page numbers of group 1."""
    windowed: KVStore | None = None
    """Holds what layers with a sliding window see, under slots (`engine.cache.slots`) instead of pages ..."""
    window = 0
    """... where the widest window has so many tokens."""
    states: StateStore | None = None
    """Holds what layers without keys and values carry from token to token."""

    def __init__(self, pages: int, arenas: list[Tensor], views: list[PackedKV]) -> None:
        super().__init__(pages, arenas)
        self.layers, self._views = len(views), views

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Store k [T, H_kv, d_k] and v [T, H_kv, d_v] of a step's rows (`batch.placement`), by `native` code where
        that is given and they are copied as they are."""
        raise NotImplementedError

    def group_of(self, layer: int) -> int:
        """The layer group whose pages address a layer's arenas."""
        return 0

    def resolve(self, layer: int, to: Placement) -> tuple[KVStore, int, Placement]:
        """The store that has a layer's arenas, which layer it is there, and where rows go there."""
        return self, layer, to

    def packs(self, starts: Sequence[int], rows: Sequence[int], tables: PageTables) -> Flush | None:
        """Tokens packed in a step that writes `rows[s]` rows from index `starts[s]` on; None if there are none.

        `tables[g][s]` are the pages of sequence s in group g. What most stores pack at all is packed as it is written.
        """
        return None

    def packed_until(self, index: np.ndarray) -> np.ndarray | None:
        """[T] int64: how many tokens of its sequence a row of each index [T] reads packed; None: rows read one kind."""
        return None

    def view(self, layer: int) -> PackedKV:
        """The arenas of one layer."""
        return self._views[layer]

    def move_slots(self, src: Tensor, dst: Tensor, group: int = 0) -> None:
        """Copy slot src[i] to dst[i] in every layer, as if all reads came before all writes (compacts a tree)."""
        for arena in self._arenas:
            arena.index_copy_(0, dst, arena.index_select(0, src))

    def new_slots(self) -> WindowSlots | None:
        """Make the slots by which `windowed` is addressed from now on; None: there is no such store."""
        return None

    @property
    def whole_bytes(self) -> int:
        """Bytes of a page in the layers that read everything."""
        return self.page_bytes

    def bytes_per_token(self) -> float:
        """Bytes of one token in all layers, keys and values, scales included, `recent` not."""
        return self.storage_size() / (self.pages * PAGE_SIZE)


class DenseKVStore(KVStore):
    """Arenas of numbers, to which a model's are rounded: [pages * 16, H_kv, d] twice a layer, of its own H_kv and d."""

    written_by_kernels = True

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        pages: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        v_head_dim: int | None = None,
    ) -> None:
        """`shapes` are each layer's KV heads and their width, that of values `v_head_dim` if given.

        `pages` counts page 0, which belongs to nobody and takes the writes of padding rows.
        """
        arenas = [
            new_arena((pages * PAGE_SIZE, heads, width), dtype, torch.device(device))
            for heads, key_width in shapes
            for width in (key_width, key_width if v_head_dim is None else v_head_dim)
        ]
        pairs = zip(arenas[::2], arenas[1::2], strict=True)
        super().__init__(pages, arenas, [PackedKV(k, v) for k, v in pairs])

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Implements `KVStore.write`."""
        arenas = self._views[layer]
        if native is None or not native.store_rows(k, v, arenas, to.slots[0]):
            _store(arenas.k, k, to)
            _store(arenas.v, v, to)


class LatentKVStore(KVStore):
    """KV cache of multi-head latent attention: one arena [pages * 16, 1, rank + rope] for each layer.

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

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Implements `KVStore.write`; `v` is the first columns of `k`, and is ignored."""
        _store(self._arenas[layer], k, to)


def _store(arena: Tensor, rows: Tensor, to: Placement) -> None:
    if to.first_slot[0] >= 0:
        arena.narrow(0, to.first_slot[0], rows.shape[0]).copy_(rows)
    else:
        arena.index_copy_(0, to.slots[0], rows.to(arena.dtype))

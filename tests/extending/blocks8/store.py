"""Keys and values in 8 bits, a scale for each 32 channels: "q8_0", as llama.cpp's --cache-type-k has it."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import Arenas
from engine.cache.stores.packed import PackedKV, Placement
from engine.cache.stores.paged import new_arena
from engine.cache.stores.store import KVStore, NativeRows

BLOCK = 32


class Q8Store(KVStore):
    """Each layer's codes int8 [slots, H_kv, d] and scales float16 [slots, H_kv, ceil(d / 32)], for keys and values.

    Attention reads numbers, which `view` makes of all slots: the definition, for a kernel to be compared with.
    """

    def __init__(self, arenas: Arenas) -> None:
        shapes, pages = arenas.shape
        self._dtype = arenas.dtype
        made = []
        for heads, width in (shape for shape in shapes for _ in range(2)):
            for size, dtype in ((width, torch.int8), (-(-width // BLOCK), torch.float16)):
                made.append(new_arena((pages * PAGE_SIZE, heads, size), dtype, arenas.device))
        super().__init__(pages, made, [])
        self.layers = len(shapes)

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Implements `KVStore.write`."""
        for place, rows in ((4 * layer, k), (4 * layer + 2, v)):
            scales = (_blocks(rows.float()).abs().amax(-1) / 127).half()
            steps = scales.float().repeat_interleave(BLOCK, -1)[..., : rows.shape[-1]].clamp(min=1e-8)
            codes = (rows.float() / steps).round().clamp(-127, 127).to(torch.int8)
            self._arenas[place].index_copy_(0, to.slots[0], codes)
            self._arenas[place + 1].index_copy_(0, to.slots[0], scales)

    def view(self, layer: int) -> PackedKV:
        """Implements `KVStore.view`."""
        k, k_scales, v, v_scales = self._arenas[4 * layer : 4 * layer + 4]
        return PackedKV(self._numbers(k, k_scales), self._numbers(v, v_scales))

    def _numbers(self, codes: Tensor, scales: Tensor) -> Tensor:
        return (codes * scales.float().repeat_interleave(BLOCK, -1)[..., : codes.shape[-1]]).to(self._dtype)


def _blocks(rows: Tensor) -> Tensor:
    """[T, H_kv, d] as [T, H_kv, ceil(d / 32), 32], with zeros after the last channel."""
    return torch.nn.functional.pad(rows, (0, -rows.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))

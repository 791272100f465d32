"""Keys and values with bounds of each page's keys, by which QUEST chooses the pages that a row reads.

Of each page, KV head and channel the least and the greatest of the rotated keys are kept (Tang et al. 2024, QUEST,
arXiv 2406.10774). They are computed from the stored keys of the whole page whenever one of its slots is written. A row
looks only at the bounds of pages that end before its own page begins: every key there was written before the row, or
with it, so the bounds it sees follow from its index and its own past, however the writes were cut into steps and
whatever rejected drafts the slots held in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import Arenas
from engine.cache.stores.packed import PackedKV, Placement
from engine.cache.stores.paged import new_arena
from engine.cache.stores.store import DenseKVStore, NativeRows
from engine.config.model import ModelConfig

DENSE_LAYERS = 2
"""The first layers read every page: their attention is spread wide (section 3.2 of the paper)."""


def bounded_layers(config: ModelConfig) -> list[bool]:
    """Layers whose rows may choose pages: not the first, nor those with a window, which read all of it."""
    windows = [config.attention.windows[layer] for layer in config.attention_layers]
    return [place >= DENSE_LAYERS and window is None for place, window in enumerate(windows)]


class QuestStore(DenseKVStore):
    """A dense store with `bounds` (see `PackedKV`) in the layers that choose pages."""

    ranks_pages = True

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        pages: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        *,
        bounded: Sequence[bool],
    ) -> None:
        """`bounded[i]` says whether layer i keeps bounds; the others are as in `DenseKVStore`."""
        super().__init__(shapes, pages, dtype, device)
        for layer, ((heads, width), wanted) in enumerate(zip(shapes, bounded, strict=True)):
            if wanted:
                bounds = new_arena((pages, heads, 2 * width), dtype, torch.device(device))
                self._views[layer] = self._views[layer]._replace(bounds=bounds)
        self._written: tuple[Placement, Tensor] | None = None

    @classmethod
    def of(cls, arenas: Arenas) -> QuestStore:
        """The store of these arenas' layers."""
        bounded = bounded_layers(arenas.config)
        return cls(*arenas.shape, arenas.dtype, arenas.device, bounded=[bounded[layer] for layer in arenas.layers])

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Implements `KVStore.write`, and updates the bounds of the pages written to."""
        super().write(layer, k, v, to, native)
        if self._views[layer].bounds is not None:
            _bound(self._views[layer], self.written_pages(to, k.shape[0]))

    def move_slots(self, src: Tensor, dst: Tensor, group: int = 0) -> None:
        """Implements `KVStore.move_slots`, and updates the bounds of the pages moved to."""
        super().move_slots(src, dst)
        self._bound_all(dst // PAGE_SIZE)  # a page named twice is computed twice, to the same

    def copy_page(self, src: int, dst: int) -> None:
        """Implements `PagedStore.copy_page`: bounds are copied too."""
        super().copy_page(src, dst)
        for view in self._views:
            if view.bounds is not None:
                view.bounds[dst] = view.bounds[src]

    def import_pages(self, pages: Sequence[int], data: Tensor) -> None:
        """Implements `PagedStore.import_pages`. Bounds do not travel: they follow from the keys."""
        super().import_pages(pages, data)
        self._bound_all(torch.tensor(list(pages), dtype=torch.int64, device=self.device))

    def storage_size(self) -> int:
        """Implements `PagedStore.storage_size`: bounds included."""
        kept = (view.bounds for view in self._views if view.bounds is not None)
        return super().storage_size() + sum(bounds.numel() * bounds.element_size() for bounds in kept)

    def _bound_all(self, pages: Tensor) -> None:
        for view in self._views:
            if view.bounds is not None:
                _bound(view, pages)

    def written_pages(self, to: Placement, rows: int) -> Tensor:
        """The pages [N] int64 that a step's rows write; found at its first such layer if the placement does not say."""
        if to.pages is not None:
            return to.pages
        if self._written is None or self._written[0] is not to:
            first = to.first_slot[0]
            if first >= 0:
                pages = torch.arange(first // PAGE_SIZE, (first + rows - 1) // PAGE_SIZE + 1, device=self.device)
            else:
                pages = torch.unique(to.slots[0] // PAGE_SIZE)
            self._written = (to, pages)
        return self._written[1]


def _bound(view: PackedKV, pages: Tensor) -> None:
    """Compute the bounds of the pages [N] from their keys."""
    assert view.bounds is not None
    slots, heads, width = view.k.shape
    keys = view.k.view(slots // PAGE_SIZE, PAGE_SIZE, heads, width).index_select(0, pages)
    view.bounds.index_copy_(0, pages, torch.cat((keys.amin(1), keys.amax(1)), -1))

"""A store whose layers with a sliding window have smaller arenas, addressed by slots of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.cache.slots import WindowSlots
from engine.cache.stores.packed import Flush, PackedKV, PageTables, Placement
from engine.cache.stores.store import KVStore, NativeRows

_MARK = 8
"""Bytes at the end of an exported page that say whether it has what layers with a window keep. A word, as stores copy
words."""


class WindowedStore(KVStore):
    """Two stores: group 0 has the layers that read everything, by pages; the last group those with a window, by slots.

    A page that is exported takes its slot's content along, or nobody's where it has none. Where both pack what is
    `recent`, the same for all layers, group 1 has that between them.
    """

    num_groups = written_groups = 2
    windowed: KVStore

    def __init__(
        self,
        everything: KVStore | None,
        windowed: KVStore,
        pages: int,
        windows: Sequence[int | None],
        ranks_pages: bool = False,
    ) -> None:
        """``windows`` are those of all layers; each store has the layers of its kind, in order. ``everything`` None:
        all have one. ``pages`` are the pool's, page 0 included."""
        self.parts = (everything or windowed, windowed)
        self.everything, self.windowed = everything, windowed
        self.window = max(window for window in windows if window is not None)
        self.recent, self.residual = windowed.recent, windowed.residual
        if self.recent is not None:
            self.num_groups, self.written_groups = 3, 1
        self._last = self.num_groups - 1
        self.slots = WindowSlots(pages, windowed.pages, self.window, self.residual)
        """The slots of pages that are copied and moved."""
        groups = [int(window is not None) for window in windows]
        self._places = [(group, groups[:layer].count(group)) for layer, group in enumerate(groups)]
        """Which of the parts has a layer, and which layer it is there."""
        views = [self.parts[group].view(within) for group, within in self._places]
        self.pages, self.layers, self._views, self.device = pages, len(views), views, windowed.device
        self.ranks_pages, self.hadamard = ranks_pages, windowed.hadamard
        self._width = everything.page_bytes if everything is not None else 0
        self.page_bytes = self._width + windowed.page_bytes + _MARK
        whole = everything.page_layout if everything is not None else "nothing"
        self.page_layout = f"{whole}; in windows {windowed.page_layout}"

    def new_slots(self) -> WindowSlots:
        """Implements `KVStore.new_slots`."""
        self.slots = WindowSlots(self.pages, self.windowed.pages, self.window, self.residual)
        return self.slots

    @property
    def whole_bytes(self) -> int:
        """Implements `KVStore.whole_bytes`."""
        return self._width

    def group_of(self, layer: int) -> int:
        """Implements `KVStore.group_of`."""
        return self._last * self._places[layer][0]

    def resolve(self, layer: int, to: Placement) -> tuple[KVStore, int, Placement]:
        """Implements `KVStore.resolve`."""
        group, within = self._places[layer]
        if group == 0:
            return self.parts[0], within, to
        if self.recent is None:
            return self.windowed, within, Placement(to.slots[1:], to.first_slot[1:])
        flush = to.flush
        if flush is not None and flush.slots is not None:
            flush = Flush(flush.recent_slots, flush.slots)
        return self.windowed, within, to._replace(flush=flush)

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement, native: NativeRows | None = None) -> None:
        """Implements `KVStore.write`."""
        store, within, own = self.resolve(layer, to)
        store.write(within, k, v, own, native)

    def packs(self, starts: Sequence[int], rows: Sequence[int], tables: PageTables) -> Flush | None:
        """Implements `KVStore.packs`: groups that no window sees any more go to slot 0, which is nobody's."""
        if self.recent is None:
            return None
        whole, recent, slots = tables
        found, windows = (self.windowed.packs(starts, rows, (table, recent)) for table in (whole, slots))
        return found and windows and found._replace(slots=windows.pages)

    def packed_until(self, index: np.ndarray) -> np.ndarray | None:
        """Implements `KVStore.packed_until`."""
        return self.windowed.packed_until(index)

    def view(self, layer: int) -> PackedKV:
        """Implements `KVStore.view`."""
        return self._views[layer]

    def move_slots(self, src: Tensor, dst: Tensor, group: int = 0) -> None:
        """Implements `KVStore.move_slots`; recent rows of all layers move together."""
        if self.recent is not None:
            self.recent.move_slots(src, dst)
        elif group == 1:
            self.windowed.move_slots(src, dst)
        elif self.everything is not None:
            self.everything.move_slots(src, dst)

    def copy_page(self, src: int, dst: int) -> None:
        """Copy what layers that read everything have of one page; a slot is copied by whoever holds it."""
        if self.everything is not None:
            self.everything.copy_page(src, dst)

    def clear_pages(self, pages: Sequence[int]) -> None:
        """Implements `PagedStore.clear_pages`; slots that nobody holds are cleared too, for the pages may have had
        them."""
        if self.everything is not None:
            self.everything.clear_pages(pages)
        slots = range(1, self.windowed.pages) if any(pages) else range(0)
        free = [slot for slot in slots if not self.slots.pool.refs(slot)]
        self.windowed.clear_pages([*(self.slots.of_page[page] for page in pages), *free])

    def export_pages(self, pages: Sequence[int], out: Tensor | None = None) -> Tensor:
        """Implements `PagedStore.export_pages`."""
        if out is None:
            out = torch.empty((len(pages), self.page_bytes), dtype=torch.uint8)
        slots = [self.slots.of_page[page] for page in pages]
        if self.everything is not None:
            out[:, : self._width] = self.everything.export_pages(pages)
        out[:, self._width : -_MARK] = self.windowed.export_pages(slots)
        out[:, -_MARK:] = (torch.tensor(slots) > 0)[:, None]
        return out

    def import_pages(self, pages: Sequence[int], data: Tensor) -> None:
        """Implements `PagedStore.import_pages`. Pages that have a slot by now get its content, or are noted where it
        did not come along (`WindowSlots.unfilled`)."""
        if data.dtype != torch.uint8 or tuple(data.shape) != (len(pages), self.page_bytes):
            raise ValueError(f"exported pages have the shape {tuple(data.shape)}, not {(len(pages), self.page_bytes)}")
        if self.everything is not None:
            self.everything.import_pages(pages, data[:, : self._width].contiguous())
        with_slot = [place for place, page in enumerate(pages) if self.slots.of_page[page]]
        filled = [place for place in with_slot if data[place, -1]]
        self.windowed.import_pages(
            [self.slots.of_page[pages[place]] for place in filled], data[filled, self._width : -_MARK].contiguous()
        )
        self.slots.unfilled |= {pages[place] for place in set(with_slot) - set(filled)}

    def storage_size(self) -> int:
        """Implements `PagedStore.storage_size`: of all stores."""
        return sum(each.storage_size() for each in (self.everything, self.windowed, self.recent) if each is not None)

    def bytes_per_token(self) -> float:
        """Implements `KVStore.bytes_per_token`: as long as a token is in the windows."""
        return self.windowed.bytes_per_token() + (
            self.everything.bytes_per_token() if self.everything is not None else 0
        )

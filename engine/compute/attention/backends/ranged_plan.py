"""The plan of a batch whose rows see ranges of keys (`KeyRange`): nothing outside the ranges is read, page by page."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from engine.base.devices import traits
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.transfer import on_device
from engine.compute.attention.backends.plan import (
    SPLIT_PREFIX,
    AttentionPlan,
    Block,
    KeySource,
    Padded,
    additive,
    place,
    worth_padding,
)
from engine.compute.attention.backends.reference import visible
from engine.compute.attention.interface import AttnSpec, KeyRange
from engine.compute.batch import Batch


class _VisibleRange(NamedTuple):
    """The rows of one sequence: row i of the batch's `rows` sees the keys lo[i] <= index < hi[i], maybe none."""

    sequence: int
    rows: slice
    lo: np.ndarray
    hi: np.ndarray

    @property
    def length(self) -> int:
        return self.rows.stop - self.rows.start

    def span(self) -> tuple[int, int]:
        """The keys that any row sees lie in [lo, hi); (0, 0) if there are none."""
        seeing = self.lo < self.hi
        return (int(self.lo[seeing].min()), int(self.hi[seeing].max())) if seeing.any() else (0, 0)


def make_ranged_plan(
    batch: Batch, spec: AttnSpec, group: int, heads_per_kv: int, dtype: torch.dtype, keys: KeyRange, granule: int = 1
) -> AttentionPlan:
    """Same as `make_plan`, for ranges. Rows that see nothing may be in no block: their result is (0, -inf)."""
    trees = batch.host.trees
    sights = [_sight(batch, spec, s, keys) for s in range(batch.host.S)]
    sights = [sight for sight in sights if sight.span()[1]]
    single = [sight for sight in sights if sight.length == 1 and not (trees and trees[sight.sequence])]
    lengths = [sight.span()[1] - sight.span()[0] // PAGE_SIZE * PAGE_SIZE for sight in single]
    together = worth_padding(batch, lengths)
    padded = _pad(batch, group, single, dtype, granule) if together else None
    padded_too = {sight.sequence for sight in single} if together else set()
    alone = [sight for sight in sights if sight.sequence not in padded_too]
    return AttentionPlan(
        [_source(batch, spec, group, sight, heads_per_kv, dtype, keys, granule) for sight in alone], padded
    )


def _sight(batch: Batch, spec: AttnSpec, sequence: int, keys: KeyRange) -> _VisibleRange:
    """Keys that each row of a sequence sees; of a tree, whose rows' positions only the device knows, bounds of them."""
    host = batch.host
    rows, kv_len = slice(host.row_start[sequence], host.row_start[sequence + 1]), host.kv_len[sequence]
    start = kv_len - (rows.stop - rows.start)
    tree = bool(host.trees) and host.trees[sequence]
    seen, index = keys.of_rows(rows), np.arange(start, kv_len)
    if not tree:
        return _VisibleRange(sequence, rows, *seen.of_chain(index, spec.window))
    lo, _ = seen.of_chain(np.full_like(index, start), spec.window)
    hi = np.full_like(index, kv_len)
    if seen.stop is not None:  # a new row at a low depth may come late in the order of rows
        hi = np.where(seen.stop > start, kv_len, seen.stop)
    return _VisibleRange(sequence, rows, lo, hi)


def _pad(batch: Batch, group: int, single: list[_VisibleRange], dtype: torch.dtype, granule: int) -> Padded:
    """Each sequence's pages from its own first key on; those that others need besides are page 0, masked."""
    device, tables = batch.page_table.device, batch.host.pages[group]
    step = granule * PAGE_SIZE
    begins = [int(sight.lo[0]) // step * step // PAGE_SIZE for sight in single]
    width = max(-(-int(sight.hi[0]) // PAGE_SIZE) - begin for sight, begin in zip(single, begins, strict=True))
    width += -width % granule
    pages = np.zeros((len(single), width), dtype=np.int64)
    seen = np.zeros((len(single), width * PAGE_SIZE), dtype=np.bool_)
    for i, sight in enumerate(single):
        lo, hi = int(sight.lo[0]), int(sight.hi[0])
        first, stop = begins[i], -(-hi // PAGE_SIZE)
        pages[i, : stop - first] = tables[sight.sequence][first:stop]
        seen[i, lo - first * PAGE_SIZE : hi - first * PAGE_SIZE] = True
    rows = [sight.rows.start for sight in single]
    return Padded(
        None if rows == list(range(len(rows))) else on_device(device, rows),
        on_device(device, pages.ravel()),
        len(single),
        additive(on_device(device, seen), dtype)[:, None, None, :],
    )


def _source(
    batch: Batch,
    spec: AttnSpec,
    group: int,
    sight: _VisibleRange,
    heads_per_kv: int,
    dtype: torch.dtype,
    keys: KeyRange,
    granule: int,
) -> KeySource:
    lo, hi = sight.span()
    base, first_slot, taken = place(batch, group, sight.sequence, lo, hi, granule)
    if batch.host.trees and batch.host.trees[sight.sequence]:
        blocks = [_tree_block(batch, spec, sight, base, heads_per_kv, dtype, keys)]
    else:
        device = batch.positions.device
        size = traits(device).block_rows
        cuts = range(sight.rows.start, sight.rows.stop, size)
        found = [_block(sight, at, min(at + size, sight.rows.stop), base, heads_per_kv, dtype, device) for at in cuts]
        blocks = [block for block in found if block is not None]
    return KeySource(first_slot, taken, hi - base, blocks)


def _block(
    sight: _VisibleRange, row: int, stop: int, base: int, heads_per_kv: int, dtype: torch.dtype, device: torch.device
) -> Block | None:
    """Rows [row, stop) of a chain; None: they see nothing."""
    at = slice(row - sight.rows.start, stop - sight.rows.start)
    part = sight._replace(rows=slice(row, stop), lo=sight.lo[at], hi=sight.hi[at])
    lo, hi = part.span()
    if hi == 0:
        return None
    seeing = part.lo < part.hi
    even = bool(seeing.all()) and bool((part.lo == lo).all())
    if even and bool((part.hi == hi).all()):
        return Block(row, stop - row, lo - base, hi - base, hi - base, None)
    common = int(part.hi.min()) - 1  # if even, all rows see the keys [lo, common], and so something of both parts
    split = common if even and common - lo > SPLIT_PREFIX else lo
    key = np.arange(split, hi)
    seen = (key >= part.lo[:, None]) & (key < part.hi[:, None]) | ~seeing[:, None]
    mask = additive(on_device(device, seen), dtype).repeat_interleave(heads_per_kv, 0)
    nothing = None if seeing.all() else on_device(device, ~seeing)
    return Block(row, stop - row, lo - base, hi - base, split - base, mask, nothing)


def _tree_block(
    batch: Batch, spec: AttnSpec, sight: _VisibleRange, base: int, heads_per_kv: int, dtype: torch.dtype, keys: KeyRange
) -> Block:
    hi, kv_len = sight.span()[1], batch.host.kv_len[sight.sequence]
    seen = visible(batch, spec, sight.sequence, kv_len, sight.rows, keys)[:, base:hi]
    nothing = ~seen.any(1)
    mask = additive(seen | nothing[:, None], dtype).repeat_interleave(heads_per_kv, 0)
    return Block(sight.rows.start, sight.length, 0, hi - base, 0, mask, nothing)

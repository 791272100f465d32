"""Attention plan of a batch, computed once for all layers of a step.

A chunk of rows is cut into blocks, so that no mask or score matrix grows with the product of chunk and context. Every
block reads a range of its sequence's keys: a view of the arena where the pages are consecutive, a gathered copy
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.base.devices import traits
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.transfer import on_device
from engine.compute.attention.backends.reference import visible
from engine.compute.attention.interface import AttnSpec
from engine.compute.batch import Batch

# A block whose rows share a longer prefix than this attends to it without a mask, and merges the masked rest.
SPLIT_PREFIX = 1024
# Decoding sequences are attended in one padded call while the longest has at most this many tokens.
MAX_PADDED_KV = 256


class Block(NamedTuple):
    """Rows [row, row + rows) of the batch attend to the keys [lo, hi) of their source; those before `split` unmasked.

    `mask` [rows * H / H_kv, hi - split] is added to the scores; None: every row sees every key. Rows that are true in
    `nothing` [rows] see no key at all, whatever the mask says: a softmax over nothing would not be a number.
    """

    row: int
    rows: int
    lo: int
    hi: int
    split: int
    mask: Tensor | None
    nothing: Tensor | None = None


class KeySource(NamedTuple):
    """Keys of one sequence for its blocks: `length` slots from `first_slot`, or those of `pages` if there are any."""

    first_slot: int
    pages: Tensor | None
    length: int
    blocks: list[Block]


class Padded(NamedTuple):
    """Sequences of one row, attended together: keys padded to the longest, [n, P * 16] of them."""

    rows: Tensor | None  # [n] rows of the batch; None: all rows in order
    pages: Tensor  # [n * P]
    n: int
    mask: Tensor  # [n, 1, 1, P * 16] added to the scores


class AttentionPlan(NamedTuple):
    """All work of one batch for layers with the same window."""

    sources: list[KeySource]
    padded: Padded | None


def make_plan(
    batch: Batch, spec: AttnSpec, group: int, heads_per_kv: int, dtype: torch.dtype, granule: int = 1
) -> AttentionPlan:
    """Plan the batch. Reads only the host mirror, so it does not wait for the device.

    Pages are read ``granule`` by ``granule``, as many as `PackedKV.granule` tokens fill.
    """
    host = batch.host
    single = [s for s in range(host.S) if host.row_start[s + 1] - host.row_start[s] == 1]
    together = worth_padding(batch, [host.kv_len[s] for s in single])
    padded = _pad(batch, spec, group, single, dtype, granule) if together else None
    alone = [s for s in range(host.S) if host.row_start[s + 1] - host.row_start[s] > 1] if together else range(host.S)
    return AttentionPlan([_source(batch, spec, group, s, heads_per_kv, dtype, granule) for s in alone], padded)


def worth_padding(batch: Batch, lengths: list[int]) -> bool:
    """Return True if sequences of one row each, with these ``lengths`` of keys, are attended in one padded call."""
    if batch.tokens.device.type != "cpu":
        return len(lengths) > 1
    return len(lengths) > 2 and max(lengths) <= MAX_PADDED_KV and max(lengths) * len(lengths) <= 2 * sum(lengths)


def _pad(batch: Batch, spec: AttnSpec, group: int, single: list[int], dtype: torch.dtype, granule: int) -> Padded:
    host, device = batch.host, batch.page_table.device
    longest = max(host.kv_len[s] for s in single)
    pages = -(-longest // PAGE_SIZE)
    pages += -pages % granule
    table, lengths = batch.page_table[group, : host.S, :pages], batch.kv_len[: host.S]
    rows = None
    if len(single) < host.S:
        chosen = on_device(device, single)
        rows = on_device(device, [host.row_start[s] for s in single])
        table, lengths = table[chosen], lengths[chosen]
    key = torch.arange(pages * PAGE_SIZE, device=device)
    seen = key < lengths[:, None]
    if spec.window is not None:
        seen &= key >= lengths[:, None] - spec.window
    return Padded(rows, table.reshape(-1), len(single), additive(seen, dtype)[:, None, None, :])


def _source(
    batch: Batch, spec: AttnSpec, group: int, sequence: int, heads_per_kv: int, dtype: torch.dtype, granule: int
) -> KeySource:
    host = batch.host
    begin, end, kv_len = host.row_start[sequence], host.row_start[sequence + 1], host.kv_len[sequence]
    start = kv_len - (end - begin)  # index of the first row
    reach = kv_len if spec.window is None else spec.window
    base, first_slot, taken = place(batch, group, sequence, max(0, start + 1 - reach), kv_len, granule)
    if host.trees and host.trees[sequence]:
        blocks = [_tree_block(batch, spec, sequence, base, heads_per_kv, dtype)]
    else:
        size = traits(batch.tokens.device).block_rows
        blocks = [
            _causal_block(batch, start - begin, at, min(at + size, end), reach, base, heads_per_kv, dtype)
            for at in range(begin, end, size)
        ]
    return KeySource(first_slot, taken, kv_len - base, blocks)


def place(
    batch: Batch, group: int, sequence: int, lo: int, hi: int, granule: int = 1
) -> tuple[int, int, Tensor | None]:
    """Location of the keys [lo, hi): the index of the first key on their pages, and `Source`'s first two fields."""
    first, stop = lo // PAGE_SIZE, -(-hi // PAGE_SIZE)
    first -= first % granule
    pages = batch.host.pages[group][sequence]
    if batch.host.first_page[group][sequence] >= 0 or _consecutive(pages[first:stop]):
        return first * PAGE_SIZE, pages[first] * PAGE_SIZE, None
    return first * PAGE_SIZE, -1, batch.page_table[group, sequence, first:stop]


def _causal_block(
    batch: Batch, offset: int, row: int, stop: int, reach: int, base: int, heads_per_kv: int, dtype: torch.dtype
) -> Block:
    """Rows [row, stop) of a chain, whose indices are `offset` more; `base` is the index of the first key read."""
    rows, first = stop - row, offset + row
    lo, hi = max(0, first + 1 - reach), first + rows
    if rows == 1:
        return Block(row, 1, lo - base, hi - base, hi - base, None)
    whole = hi <= reach  # no row's window ends inside the block's keys
    split = first if whole and first > SPLIT_PREFIX else lo
    device = batch.positions.device
    query, key = torch.arange(first, hi, device=device)[:, None], torch.arange(split, hi, device=device)
    seen = key <= query
    if not whole:
        seen &= key > query - reach
    mask = additive(seen, dtype).repeat_interleave(heads_per_kv, 0)
    return Block(row, rows, lo - base, hi - base, split - base, mask)


def _tree_block(batch: Batch, spec: AttnSpec, sequence: int, base: int, heads_per_kv: int, dtype: torch.dtype) -> Block:
    begin, kv_len = batch.host.row_start[sequence], batch.host.kv_len[sequence]
    rows = batch.host.row_start[sequence + 1] - begin
    whole = spec.window is None or kv_len <= spec.window
    split = kv_len - rows if whole and kv_len - rows > SPLIT_PREFIX else base
    seen = visible(batch, spec, sequence, kv_len, slice(begin, begin + rows))
    mask = additive(seen[:, split:], dtype).repeat_interleave(heads_per_kv, 0)
    return Block(begin, rows, 0, kv_len - base, split - base, mask)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive mask for the scores: 0 where a key is seen, -inf elsewhere."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)


def _consecutive(pages: Sequence[int]) -> bool:
    return pages[-1] - pages[0] == len(pages) - 1 and list(pages) == list(range(pages[0], pages[0] + len(pages)))

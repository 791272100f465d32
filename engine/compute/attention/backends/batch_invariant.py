"""Attention that gives a query row the same bits however it was batched.

Floating point sums depend on their order, and vectorised kernels on the shape around an element. So every operation
that rounds in its own way (products of matrices, exp, tanh, log, sums) has one fixed shape here: queries go in tiles
of 8 rows and keys in tiles of 256, both aligned to the start of the sequence, so that an element's place in its tile
follows from its index alone. What is exact, or rounded as IEEE 754 says, has the same bits in any shape, and runs once
for a block of tiles. Absent rows are zeros, absent keys are masked. The tiles of a row are merged in their order; a
tile in which it sees nothing is (0, -inf), whose merge changes no bit. Each operand is a contiguous tensor that starts
at a multiple of 64 bytes, since kernels may choose by alignment: a fresh one, or a tile of a fresh one, which is 8 rows
of an even number of float32. A row of a tree is laid out as the chain that it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.pool import slots_of
from engine.cache.stores.codecs import unpack_slots
from engine.cache.stores.packed import PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.cache.stores.transfer import on_device
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec, KeyRange, merge
from engine.compute.attention.memo import PerBatch
from engine.compute.batch import Batch

QUERY_TILE = 8
KEY_TILE = 256
BLOCK = 16 * QUERY_TILE
"""Rows at most that go through together, which bounds the memory of their scores. Changes no bit."""


class Chain(NamedTuple):
    """Rows of the batch with consecutive indices from `first`, and the slot of every key up to the last of them."""

    rows: slice
    first: int
    slots: np.ndarray  # [first + rows] int64


class Keys(NamedTuple):
    """What the rows of a block see in one tile of keys."""

    slots: Tensor  # [n] int64
    at: slice  # their places in the tile
    mask: Tensor | None  # [tiles, 1, 8, 1, 256] float32, -inf where a row does not see a key; None: each sees all


class ChainRows(NamedTuple):
    """Rows of a chain in consecutive tiles of queries, `at` their places in these, and the keys that they see."""

    rows: slice
    at: slice
    keys: list[Keys]

    @property
    def tiles(self) -> int:
        """Tiles of queries."""
        return -(-self.at.stop // QUERY_TILE)


class BatchInvariantAttention(AttentionBackend):
    """Float32 attention in fixed tiles, for every dtype."""

    name = "batch_invariant"
    captures = False

    def __init__(self) -> None:
        self._blocks: PerBatch[tuple[list[ChainRows], KeyRange | None]] = PerBatch()

    def declines(self, problem: AttnProblem) -> str | None:
        """It serves only the switch: it is slower than the others."""
        if problem.kind not in (*PLAIN_KINDS, *PACKED_KINDS):
            return f"cannot read the KV kind {problem.kind}"
        return None if problem.batch_invariant else "slower; used when batch-invariant numerics are on"

    def attend(
        self,
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int = 0,
        need_lse: bool = False,
        keys: KeyRange | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Implements `AttentionBackend.attend`."""
        made, key = self._blocks.of(batch), (group, spec.window, kv.granule, id(keys))
        if key not in made:  # the range is kept with them, so that no other has its id
            made[key] = list(_blocks(batch, group, spec.window, keys or KeyRange(), kv.granule)), keys
        out = q.new_zeros(q.shape[0], q.shape[1], kv.v_dim)
        lse_out = q.new_full(q.shape[:2], -torch.inf, dtype=torch.float32) if need_lse else None
        for block in made[key][0]:
            _attend_block(q, kv, block, spec, out, lse_out)
        return out, lse_out


def _attend_block(
    q: Tensor, kv: PackedKV, block: ChainRows, spec: AttnSpec, out: Tensor, lse_out: Tensor | None
) -> None:
    queries = _query_tiles(q, block, kv.kv_heads)
    done: tuple[Tensor, Tensor] | None = None
    for keys in block.keys:
        k, v = (_key_tile(taken, keys.at) for taken in unpack_slots(kv, keys.slots, q.dtype))
        o, lse = _part(queries, k, v, keys.mask, spec)
        if done is None:  # Adding 0 is what merging with (0, -inf) does: it makes a zero of -0.
            done = o.add_(0.0), lse.add_(0.0)
        else:
            merged = [merge(*tile) for tile in zip(*done, o, lse, strict=True)]
            done = torch.stack([o for o, _ in merged]), torch.stack([lse for _, lse in merged])
    if done is not None:
        out[block.rows] = _rows(done[0])[block.at]
        if lse_out is not None:
            lse_out[block.rows] = _rows(done[1])[block.at]


def _part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: AttnSpec) -> tuple[Tensor, Tensor]:
    """q [tiles, H_kv, 8 * G, d], k [H_kv, 256, d], v [H_kv, 256, d_v] -> o, lse of the tiles, all of them float32."""
    scores, o = q.new_empty(*q.shape[:3], KEY_TILE), q.new_empty(*q.shape[:3], v.shape[2])
    across, number, totals = k.transpose(1, 2), torch.finfo(torch.float32), []
    for rows, tile in zip(q, scores, strict=True):
        torch.bmm(rows, across, out=tile)
    scores.mul_(spec.scale)
    if spec.softcap is not None:
        scores.div_(spec.softcap)
        for tile in scores:
            tile.tanh_()
        scores.mul_(spec.softcap)
    if mask is not None:
        scores.view(*scores.shape[:2], QUERY_TILE, -1, KEY_TILE).add_(mask)
    top = scores.amax(dim=3, keepdim=True).clamp_(min=number.min)  # not -inf, as -inf - -inf is no number
    scores.sub_(top)
    for tile, product in zip(scores, o, strict=True):
        totals.append(tile.exp_().sum(dim=2, keepdim=True))
        torch.bmm(tile, v, out=product)
    lse = top.add_(torch.stack([total.log() for total in totals])).squeeze(3)
    return o.div_(torch.stack(totals).clamp_(min=number.tiny)), lse


def _query_tiles(q: Tensor, block: ChainRows, kv_heads: int) -> Tensor:
    """The rows of a block [tiles, H_kv, 8 * G, d] float32, zeros where the batch has no such row."""
    whole = q.new_zeros(block.tiles * QUERY_TILE, *q.shape[1:], dtype=torch.float32)
    whole[block.at] = q[block.rows]
    grouped = whole.view(block.tiles, QUERY_TILE, kv_heads, -1, q.shape[2]).transpose(1, 2)
    return grouped.reshape(block.tiles, kv_heads, -1, q.shape[2])


def _key_tile(taken: Tensor, at: slice) -> Tensor:
    """Keys or values [n, H_kv, d] of one tile as [H_kv, 256, d] float32, zeros for those that no row of the block sees.

    A masked key has the weight 0, so that its number changes no bit of a sum; but 0 * NaN is NaN.
    """
    whole = taken.new_zeros(taken.shape[1], KEY_TILE, taken.shape[2], dtype=torch.float32)
    whole[:, at] = taken.transpose(0, 1)
    return whole


def _rows(tiles: Tensor) -> Tensor:
    """Tiles [tiles, H_kv, 8 * G, ...] -> rows [tiles * 8, H, ...]."""
    count, kv_heads, _, *rest = tiles.shape
    grouped = tiles.view(count, kv_heads, QUERY_TILE, -1, *rest).transpose(1, 2)
    return grouped.reshape(count * QUERY_TILE, -1, *rest)


def _blocks(batch: Batch, group: int, window: int | None, keys: KeyRange, granule: int) -> Iterator[ChainRows]:
    """Every chain cut into blocks, each with its rows' own keys in one tile of keys."""
    device = batch.page_table.device
    for chain in _chains(batch, group):
        index = np.arange(chain.first, chain.slots.shape[0])
        first, stop = keys.of_rows(chain.rows).of_chain(index, window)
        for begin in range(chain.first // BLOCK * BLOCK, chain.slots.shape[0], BLOCK):
            own = slice(max(0, begin - chain.first), begin + BLOCK - chain.first)
            place, count = int(index[own][0]) % QUERY_TILE, index[own].shape[0]
            row, at = chain.rows.start + own.start, slice(place, place + count)
            seen = list(_seen(chain.slots, at, first[own], stop[own], granule, device))
            yield ChainRows(slice(row, row + count), at, seen)


def _seen(
    slots: np.ndarray, at: slice, first: np.ndarray, stop: np.ndarray, granule: int, device: torch.device
) -> Iterator[Keys]:
    """By tiles of keys, what the rows of a block see: row i the keys with first[i] <= index < stop[i].

    Absent rows hide nothing: they are zeros, and nobody reads what they give.
    """
    stop = np.minimum(stop, slots.shape[0])  # a row of a tree sees none after its own, whatever its range
    seeing = first < stop
    begin, end = int(first.min(where=seeing, initial=slots.shape[0])), int(stop.max(where=seeing, initial=0))
    for tile in range(begin // KEY_TILE * KEY_TILE, end, KEY_TILE):
        key = np.arange(tile, tile + KEY_TILE)
        hidden = (key < first[:, None]) | (key >= stop[:, None])
        if hidden.all():
            continue
        mask = None
        if hidden.any():
            added = np.zeros((-(-at.stop // QUERY_TILE), 1, QUERY_TILE, 1, KEY_TILE), dtype=np.float32)
            np.copyto(added.reshape(-1, KEY_TILE)[at], -np.inf, where=hidden)
            mask = on_device(device, added)
        read = slice(max(begin // granule * granule, tile), min(end, tile + KEY_TILE))
        yield Keys(on_device(device, slots[read]), slice(read.start - tile, read.stop - tile), mask)


def _chains(batch: Batch, group: int) -> Iterator[Chain]:
    """Every sequence as a chain; a tree as one chain for each row: the prefix, then the row's ancestors."""
    host = batch.host
    for s in range(host.S):
        begin, end, kv_len = host.row_start[s], host.row_start[s + 1], host.kv_len[s]
        slots = slots_of(host.pages[group][s], range(kv_len))
        prefix = kv_len - (end - begin)
        if not (host.trees and host.trees[s]):
            yield Chain(slice(begin, end), prefix, slots)
            continue
        assert batch.ancestors is not None
        for row, bits in zip(range(begin, end), batch.ancestors[begin:end].tolist(), strict=True):
            path = [j for j in range(row - begin + 1) if bits >> j & 1]  # new rows from the root to this row
            yield Chain(slice(row, row + 1), prefix + len(path) - 1, np.append(slots[:prefix], slots[prefix:][path]))

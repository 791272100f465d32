"""Attention that gives a query row the same bits however it was batched.

Floating point sums depend on their order, and vectorised kernels on the shape around an element. So every operation
here has one fixed shape: queries go in tiles of 8 rows and keys in tiles of 256, both aligned to the start of the
sequence, so that an element's place in its tile follows from its index alone. Absent rows are zeros, absent keys are
masked. The tiles of a row are merged in their order; a tile in which it sees nothing is (0, -inf), whose merge
changes no bit. Each operand is a fresh contiguous tensor, since kernels may choose by alignment. A row of a tree is
laid out as the chain that it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.codecs import unpack_slots
from engine.cache.stores.packed import PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.cache.stores.transfer import on_device
from engine.compute.attention.backends.reference import slots_of
from engine.compute.attention.interface import AttnProblem, AttnSpec, KeyRange, merge
from engine.compute.attention.memo import PerBatch
from engine.compute.batch import Batch

QUERY_TILE = 8
KEY_TILE = 256


class Chain(NamedTuple):
    """Rows of the batch with consecutive indices from `first`, and the slot of every key up to the last of them."""

    rows: slice
    first: int
    slots: Tensor  # [first + rows] int64

    @property
    def stop(self) -> int:
        """The index after the last row's."""
        return self.first + self.rows.stop - self.rows.start


class BatchInvariantAttention:
    """Float32 attention in fixed tiles, for every dtype."""

    name = "batch_invariant"
    captures = False

    def __init__(self) -> None:
        self._chains: PerBatch[list[Chain]] = PerBatch()

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
        chains = self._chains.of(batch)
        if group not in chains:
            chains[group] = list(_chains(batch, group))
        out = q.new_zeros(q.shape[0], q.shape[1], kv.v_dim)
        lse_out = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
        for chain in chains[group]:
            _attend_chain(q, kv, chain, _VisibleKeys(chain, spec.window, keys), spec, out, lse_out)
        return out, lse_out if need_lse else None


class _VisibleKeys:
    """Keys visible to the rows of a chain: row i sees those with first[i] <= index < stop[i]."""

    def __init__(self, chain: Chain, window: int | None, keys: KeyRange | None) -> None:
        self._begin = chain.first
        seen = (keys or KeyRange()).of_rows(chain.rows)
        self._first, stop = seen.of_chain(np.arange(chain.first, chain.stop), window)
        self._stop = np.minimum(stop, chain.stop)  # a row of a tree sees none after its own, whatever its range
        seeing = self._first < self._stop
        self.first = int(self._first[seeing].min(initial=chain.stop))
        """First of all keys that any row sees; not below `stop` if there are none."""
        self.stop = int(self._stop[seeing].max(initial=0))

    def hidden(self, tile: int, key_tile: int) -> np.ndarray | None:
        """Mask [8, 256] of the keys of a tile that the rows of a tile of queries do not see; None: no row sees any.

        Absent rows hide nothing: they are zeros, and nobody reads what they give.
        """
        at = slice(max(0, tile * QUERY_TILE - self._begin), max(0, (tile + 1) * QUERY_TILE - self._begin))
        first, stop = self._first[at], self._stop[at]
        begin, end = key_tile * KEY_TILE, (key_tile + 1) * KEY_TILE
        if not ((np.maximum(first, begin) < np.minimum(stop, end)).any()):
            return None
        key = np.arange(begin, end)
        hidden = np.zeros((QUERY_TILE, KEY_TILE), dtype=np.bool_)
        place = max(0, self._begin - tile * QUERY_TILE)
        hidden[place : place + first.shape[0]] = (key < first[:, None]) | (key >= stop[:, None])
        return hidden


def _attend_chain(
    q: Tensor, kv: PackedKV, chain: Chain, sight: _VisibleKeys, spec: AttnSpec, out: Tensor, lse_out: Tensor
) -> None:
    kv_heads = kv.kv_heads
    tiles = range(chain.first // QUERY_TILE, -(-chain.stop // QUERY_TILE))
    queries = [_query_tile(q, chain, tile, kv_heads) for tile in tiles]
    done: list[tuple[Tensor, Tensor] | None] = [None] * len(queries)
    for key_tile in range(sight.first // KEY_TILE, -(-sight.stop // KEY_TILE)):
        first = sight.first // kv.granule * kv.granule
        seen = slice(max(first, key_tile * KEY_TILE), min(sight.stop, (key_tile + 1) * KEY_TILE))
        taken = unpack_slots(kv, chain.slots[seen], q.dtype)
        k, v = (_key_tile(part, key_tile, seen) for part in taken)
        for i, tile in enumerate(tiles):
            hidden = sight.hidden(tile, key_tile)
            if hidden is not None:
                mask = None
                if hidden.any():
                    mask = torch.zeros(hidden.shape, dtype=torch.float32, device=q.device)
                    mask.masked_fill_(on_device(q.device, hidden), -torch.inf)
                    mask = mask.repeat_interleave(q.shape[1] // kv_heads, 0)
                part, before = _part(queries[i], k, v, mask, spec), done[i]
                # Adding 0 is what merging with (0, -inf) does: it makes a zero of -0.
                done[i] = (part[0].add_(0.0), part[1].add_(0.0)) if before is None else merge(*before, *part)
    for tile, seen_by in zip(tiles, done, strict=True):
        if seen_by is not None:
            _store(*seen_by, chain, tile, out, lse_out)


def _part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, spec: AttnSpec) -> tuple[Tensor, Tensor]:
    """q [H_kv, 8 * G, d], k [H_kv, 256, d], v [H_kv, 256, d_v], mask [8 * G, 256] -> o, lse, all of them float32."""
    scores = torch.bmm(q, k.transpose(1, 2)).mul_(spec.scale)
    if spec.softcap is not None:
        scores = scores.div_(spec.softcap).tanh_().mul_(spec.softcap)
    if mask is not None:
        scores.add_(mask)
    top = scores.amax(dim=2, keepdim=True)
    top.masked_fill_(top == -torch.inf, 0.0)
    weights = scores.sub_(top).exp_()
    total = weights.sum(dim=2, keepdim=True)
    o = torch.bmm(weights, v).div_(total.clamp(min=torch.finfo(torch.float32).tiny))
    return o, (top + total.log()).squeeze(2)


def _query_tile(q: Tensor, chain: Chain, tile: int, kv_heads: int) -> Tensor:
    """The rows of one tile [H_kv, 8 * G, d] float32, zeros where the batch has no such row."""
    heads, width = q.shape[1], q.shape[2]
    rows, at = _rows(chain, tile)
    whole = torch.zeros(QUERY_TILE, heads, width, dtype=torch.float32, device=q.device)
    whole[at : at + rows.stop - rows.start] = q[rows]
    grouped = whole.view(QUERY_TILE, kv_heads, heads // kv_heads, width).transpose(0, 1)
    return grouped.reshape(kv_heads, -1, width).contiguous()


def _key_tile(taken: Tensor, tile: int, seen: slice) -> Tensor:
    """Keys or values [n, H_kv, d] of one tile as [H_kv, 256, d] float32, zeros for those that no row of the chain sees.

    A masked key has the weight 0, so that its number changes no bit of a sum; but 0 * NaN is NaN.
    """
    _, kv_heads, width = taken.shape
    whole = torch.zeros(kv_heads, KEY_TILE, width, dtype=torch.float32, device=taken.device)
    whole[:, seen.start - tile * KEY_TILE : seen.stop - tile * KEY_TILE] = taken.transpose(0, 1)
    return whole


def _store(o: Tensor, lse: Tensor, chain: Chain, tile: int, out: Tensor, lse_out: Tensor) -> None:
    rows, at = _rows(chain, tile)
    present = slice(at, at + rows.stop - rows.start)
    kv_heads, heads = o.shape[0], out.shape[1]
    shape = (kv_heads, QUERY_TILE, heads // kv_heads)
    out[rows] = o.view(*shape, -1).transpose(0, 1)[present].reshape(-1, heads, o.shape[2]).to(out.dtype)
    lse_out[rows] = lse.view(shape).transpose(0, 1)[present].reshape(-1, heads)


def _rows(chain: Chain, tile: int) -> tuple[slice, int]:
    """Rows of the batch that lie in a query tile, and the place of the first of them in it."""
    first = max(chain.first, tile * QUERY_TILE)
    stop = min(chain.stop, (tile + 1) * QUERY_TILE)
    offset = chain.rows.start - chain.first
    return slice(first + offset, stop + offset), first - tile * QUERY_TILE


def _chains(batch: Batch, group: int) -> Iterator[Chain]:
    """Every sequence as a chain; a tree as one chain for each row: the prefix, then the row's ancestors."""
    host = batch.host
    for s in range(host.S):
        begin, end, kv_len = host.row_start[s], host.row_start[s + 1], host.kv_len[s]
        slots = slots_of(batch, group, s, kv_len)
        prefix = kv_len - (end - begin)
        if not (host.trees and host.trees[s]):
            yield Chain(slice(begin, end), prefix, slots)
            continue
        assert batch.ancestors is not None
        for row, bits in zip(range(begin, end), batch.ancestors[begin:end].tolist(), strict=True):
            path = [j for j in range(row - begin + 1) if bits >> j & 1]  # new rows from the root to this row
            index = torch.tensor([prefix + j for j in path], dtype=torch.int64, device=slots.device)
            yield Chain(slice(row, row + 1), prefix + len(path) - 1, torch.cat([slots[:prefix], slots[index]]))

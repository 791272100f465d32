"""Attention that gives a query row the same bits however it was batched.

Floating point sums depend on their order, and vectorised kernels on the shape around an element. So every operation
here has one fixed shape: queries go in tiles of 8 rows and keys in tiles of 256, both aligned to the start of the
sequence, so that an element's place in its tile follows from its index alone. Absent rows are zeros, absent keys are
masked. The tiles of a row are merged in their order; a tile in which it sees nothing is (0, -inf), whose merge
changes no bit. Each operand is a fresh contiguous tensor, since kernels may choose by alignment. A row of a tree is
laid out as the chain that it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.attention.interface import AttnProblem, AttnSpec, merge
from engine.cache.codecs import unpack_slots
from engine.cache.packed import PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.cache.pool import PAGE_SIZE
from engine.core.batch import Batch

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

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._chains: dict[int, list[Chain]] = {}

    def declines(self, problem: AttnProblem) -> str | None:
        """It serves only the switch: it is slower than the others."""
        if problem.kind not in (*PLAIN_KINDS, *PACKED_KINDS):
            return f"cannot read the KV kind {problem.kind}"
        return None if problem.batch_invariant else "slower; used when batch-invariant numerics are on"

    def attend(
        self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, group: int = 0, need_lse: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """See `AttentionBackend.attend`."""
        if batch is not self._batch:
            self._batch = batch
            self._chains.clear()
        if group not in self._chains:
            self._chains[group] = list(_chains(batch, group))
        out = q.new_zeros(q.shape[0], q.shape[1], kv.v_dim)
        lse_out = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
        for chain in self._chains[group]:
            _attend_chain(q, kv, spec, chain, out, lse_out)
        return out, lse_out if need_lse else None


def _attend_chain(q: Tensor, kv: PackedKV, spec: AttnSpec, chain: Chain, out: Tensor, lse_out: Tensor) -> None:
    kv_heads, v_dim = kv.kv_heads, kv.v_dim
    tiles = range(chain.first // QUERY_TILE, -(-chain.stop // QUERY_TILE))
    queries = [_query_tile(q, chain, tile, kv_heads) for tile in tiles]
    done = [_empty(query, v_dim) for query in queries]
    begin = 0 if spec.window is None else max(0, chain.first + 1 - spec.window) // KEY_TILE
    for key_tile in range(begin, -(-chain.stop // KEY_TILE)):
        slots = chain.slots[key_tile * KEY_TILE : (key_tile + 1) * KEY_TILE]
        k, v = (_key_tile(part) for part in unpack_slots(kv, slots, q.dtype))
        for i, tile in enumerate(tiles):
            if _touches(tile, key_tile, spec.window):
                mask = _mask(tile, key_tile, spec.window, queries[i].shape[1] // QUERY_TILE, q.device)
                done[i] = merge(*done[i], *_part(queries[i], k, v, mask, spec))
    for tile, (o, lse) in zip(tiles, done, strict=True):
        _store(o, lse, chain, tile, out, lse_out)


def _part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttnSpec) -> tuple[Tensor, Tensor]:
    """q [H_kv, 8 * G, d], k [H_kv, 256, d], v [H_kv, 256, d_v], mask [8 * G, 256] -> o, lse, all of them float32."""
    scores = torch.bmm(q, k.transpose(1, 2)).mul_(spec.scale)
    if spec.softcap is not None:
        scores = scores.div_(spec.softcap).tanh_().mul_(spec.softcap)
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


def _key_tile(taken: Tensor) -> Tensor:
    """The keys or values of one tile [n, H_kv, d] as [H_kv, 256, d] float32, zeros after the last."""
    n, kv_heads, width = taken.shape
    whole = torch.zeros(kv_heads, KEY_TILE, width, dtype=torch.float32, device=taken.device)
    whole[:, :n] = taken.transpose(0, 1)
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


def _touches(tile: int, key_tile: int, window: int | None) -> bool:
    """Whether any row of the query tile may see a key of the key tile."""
    first, last = tile * QUERY_TILE, (tile + 1) * QUERY_TILE - 1
    if key_tile * KEY_TILE > last:
        return False
    return window is None or (key_tile + 1) * KEY_TILE - 1 > first - window


def _mask(tile: int, key_tile: int, window: int | None, heads_per_kv: int, device: torch.device) -> Tensor:
    """What is added to the scores of a pair of tiles [8 * G, 256]."""
    query = torch.arange(tile * QUERY_TILE, (tile + 1) * QUERY_TILE, device=device)[:, None]
    key = torch.arange(key_tile * KEY_TILE, (key_tile + 1) * KEY_TILE, device=device)
    hidden = key > query
    if window is not None:
        hidden |= key <= query - window
    mask = torch.zeros(hidden.shape, dtype=torch.float32, device=device).masked_fill_(hidden, -torch.inf)
    return mask.repeat_interleave(heads_per_kv, 0)


def _empty(query: Tensor, v_dim: int) -> tuple[Tensor, Tensor]:
    lse = torch.full(query.shape[:2], -torch.inf, dtype=torch.float32, device=query.device)
    return torch.zeros(*query.shape[:2], v_dim, dtype=torch.float32, device=query.device), lse


def _chains(batch: Batch, group: int) -> Iterator[Chain]:
    """Every sequence as a chain; a tree as one chain for each row: the prefix, then the row's ancestors."""
    host = batch.host
    for s in range(host.S):
        begin, end, kv_len = host.row_start[s], host.row_start[s + 1], host.kv_len[s]
        slots = _slots(batch, group, s, kv_len)
        prefix = kv_len - (end - begin)
        if not (host.trees and host.trees[s]):
            yield Chain(slice(begin, end), prefix, slots)
            continue
        assert batch.ancestors is not None
        for row, bits in zip(range(begin, end), batch.ancestors[begin:end].tolist(), strict=True):
            path = _path(bits, row - begin)
            index = torch.tensor([prefix + j for j in path], dtype=torch.int64, device=slots.device)
            yield Chain(slice(row, row + 1), prefix + len(path) - 1, torch.cat([slots[:prefix], slots[index]]))


def _path(bits: int, row: int) -> Sequence[int]:
    """New rows from the root to this row."""
    return [j for j in range(row + 1) if bits >> j & 1]


def _slots(batch: Batch, group: int, sequence: int, kv_len: int) -> Tensor:
    pages = batch.page_table[group, sequence, : -(-kv_len // PAGE_SIZE)].long()
    offsets = torch.arange(PAGE_SIZE, device=pages.device)
    return (pages[:, None] * PAGE_SIZE + offsets).reshape(-1)[:kv_len]

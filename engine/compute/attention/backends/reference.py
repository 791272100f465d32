"""Attention written down as its definition. Slow, obvious, and the oracle of the other backends.

It reads only the tensors of the batch, where the others also use its host mirror.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.codecs import unpack_slots
from engine.cache.stores.packed import PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.cache.stores.transfer import on_device
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec, KeyRange
from engine.compute.batch import MAX_TREE_ROWS, Batch


class ReferenceAttention(AttentionBackend):
    """All scores of a sequence at once in float32 (float64 for float64 inputs), softmax, weighted sum."""

    name = "reference"
    captures = False

    def declines(self, problem: AttnProblem) -> str | None:
        """It computes everything."""
        return None if problem.kind in (*PLAIN_KINDS, *PACKED_KINDS) else f"cannot read the KV kind {problem.kind}"

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
        out = q.new_zeros(q.shape[0], q.shape[1], kv.v_dim)
        exact = torch.float64 if q.dtype == torch.float64 else torch.float32
        lse_out = torch.full(q.shape[:2], -torch.inf, dtype=exact, device=q.device)
        starts, lengths = batch.row_start.tolist(), batch.kv_len.tolist()
        for s in range(batch.host.S):
            begin, end, kv_len = starts[s], starts[s + 1], lengths[s]
            slots, seen = slots_of(batch, group, s, kv_len), visible(batch, spec, s, kv_len, keys=keys)
            if (
                keys is not None or spec.window is not None
            ):  # a key that no row sees may be any number, and 0 * NaN is NaN
                used = _whole_groups(seen.any(0), kv.granule)
                slots, seen = slots[used], seen[:, used]
            k, v = unpack_slots(kv, slots, q.dtype)
            o, lse = attend_dense(q[begin:end], k, v, spec, seen)
            out[begin:end], lse_out[begin:end] = o.to(q.dtype), lse.to(exact)
        return out, lse_out if need_lse else None


def _whole_groups(used: Tensor, size: int) -> Tensor:
    """Mask [N] of the keys in a group of ``size`` that has a used key: a group is read as a whole."""
    rest = -used.shape[0] % size
    groups = torch.nn.functional.pad(used, (0, rest)).view(-1, size)
    return groups.any(1, keepdim=True).expand_as(groups).flatten()[: used.shape[0]]


def attend_dense(q: Tensor, k: Tensor, v: Tensor, spec: AttnSpec, mask: Tensor) -> tuple[Tensor, Tensor]:
    """q [R, H, d], k [N, H_kv, d], v [N, H_kv, d_v], mask [R, N] true where visible -> o [R, H, d_v], lse [R, H].

    A row that sees nothing gives (0, -inf).
    """
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    rows, heads, width = q.shape
    grouped = q.to(dtype).view(rows, k.shape[1], heads // k.shape[1], width)
    scores = torch.einsum("rhgd,nhd->rhgn", grouped, k.to(dtype)) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - torch.where(lse == -torch.inf, torch.zeros_like(lse), lse).unsqueeze(-1))
    o = torch.einsum("rhgn,nhd->rhgd", weights, v.to(dtype))
    return o.reshape(rows, heads, v.shape[2]), lse.reshape(rows, heads)


def slots_of(batch: Batch, group: int, sequence: int, kv_len: int) -> Tensor:
    """Slots [kv_len] of the keys of a sequence, in the order of their index."""
    index = torch.arange(kv_len, device=batch.page_table.device)
    pages = batch.page_table[group, sequence].long()
    return pages[index // PAGE_SIZE] * PAGE_SIZE + index % PAGE_SIZE


def visible(
    batch: Batch, spec: AttnSpec, sequence: int, kv_len: int, rows: slice | None = None, keys: KeyRange | None = None
) -> Tensor:
    """Mask [rows, kv_len] of the keys that each new row of a sequence sees: the prefix and, of the new rows, its own
    ancestors.

    `rows` are the sequence's rows of the batch; None reads them from the device. Windows and ranges count positions:
    for a tree a key's position is root + depth, otherwise it is the key's index.
    """
    begin, end = (rows.start, rows.stop) if rows else batch.row_start[sequence : sequence + 2].tolist()
    count, device = end - begin, batch.positions.device
    prefix = kv_len - count
    own = torch.arange(count, device=device)
    among_new = own[None, :] <= own[:, None]
    if keys is not None and keys.ahead:
        among_new = torch.ones_like(among_new)  # of a chain, which `stop` ends; a tree's rows have their ancestors
    if batch.ancestors is not None:
        bits = batch.ancestors[begin:end, None]
        shift = own.clamp(max=MAX_TREE_ROWS - 1)[None, :]
        among_new = among_new & ((bits == -1) | ((bits >> shift) & 1).bool())
    mask = torch.cat([torch.ones(count, prefix, dtype=torch.bool, device=device), among_new], dim=1)
    query = batch.positions[begin:end]
    key = torch.cat([torch.arange(prefix, device=device), query])[None, :]
    if spec.window is not None:
        mask &= key > query[:, None] - spec.window
    first, stop, _ = keys.of_rows(slice(begin, end)) if keys is not None else KeyRange()
    if first is not None:
        mask &= key >= on_device(device, first)[:, None]
    if stop is not None:
        mask &= key < on_device(device, stop)[:, None]
    return mask

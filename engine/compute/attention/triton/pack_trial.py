"""The proof, before rows are written by the kernels of pack.py, that they store what the definitions say."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import Flush, PackedKV, Placement
from engine.cache.stores.packed_stores import TokenPackedStore
from engine.cache.stores.store import DenseKVStore, KVStore
from engine.cache.techniques.kivi.store import KiviStore
from engine.compute.attention.rotation import RotaryStep, rotate
from engine.compute.attention.triton import pack
from engine.compute.native.proof import machine_declines, tried

PAGES, HEADS, KV_HEADS = 3, 4, 2
ROWS = (PAGES - 1) * PAGE_SIZE
"""A whole group of KIVI's."""


@functools.cache
def disagrees(
    kind: str, bits: tuple[int, int], width: int, turns: int, dtype: torch.dtype, device: torch.device
) -> str | None:
    """Reason not to trust the kernels here with heads of ``width`` channels, the first ``turns`` of them rotated; None
    where they store the same numbers as torch on the host. ``bits`` are those of a key and of a value.
    """
    traits = kind, bits, width, turns, dtype
    return machine_declines(dtype, device) or tried(("pack", *traits), device, lambda: compare(*traits, device))


def compare(
    kind: str, bits: tuple[int, int], width: int, turns: int, dtype: torch.dtype, device: torch.device
) -> str | None:
    """Same as :func:`disagrees`, without the guard."""
    expected, found = (_store(kind, bits, width, dtype, place) for place in (torch.device("cpu"), device))
    rows = _rows(width, turns, dtype, torch.device("cpu"))
    qk = torch.cat((rows.q, rows.k), 1) if rows.rope is None else rotate(torch.cat((rows.q, rows.k), 1), rows.rope)
    expected.write(0, qk[:, HEADS:], rows.v, rows.to)
    there = _rows(width, turns, dtype, device)
    kv = found.view(0)
    if kv.recent is None:
        q = pack.write(there.q, there.k, there.v, there.rope, there.to.slots[0], kv)
    else:
        q = pack.write(there.q, there.k, there.v, there.rope, there.to.slots[1], kv.recent)
        assert there.to.flush is not None
        pack.flush(kv, there.to.flush)
    same = torch.equal(q.cpu(), qk[:, :HEADS]) and all(
        torch.equal(a.cpu(), b) for a, b in zip(_tensors(kv), _tensors(expected.view(0)), strict=True)
    )
    return None if same else f"what it stores of the kind {kind} does not agree with the definition here"


class _TrialRows(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    rope: RotaryStep | None
    to: Placement


def _rows(width: int, turns: int, dtype: torch.dtype, device: torch.device) -> _TrialRows:
    """Random rows as a fused projection leaves them, on shuffled slots."""
    generator = torch.Generator().manual_seed(1)
    fused = torch.randn(ROWS, HEADS + 2 * KV_HEADS, width, generator=generator).to(dtype).to(device)
    table = torch.randn(ROWS, 2, turns, generator=generator).to(dtype).to(device)
    slots = PAGE_SIZE + torch.randperm(ROWS, generator=generator).to(device)
    pages = torch.arange(1, PAGES, device=device)
    q, k, v = fused.split((HEADS, KV_HEADS, KV_HEADS), 1)
    rope = RotaryStep(table[:, :1], table[:, 1:]) if turns else None
    return _TrialRows(q, k, v, rope, Placement(slots.expand(2, -1), [-1, -1], Flush(slots, pages)))


def _store(kind: str, bits: tuple[int, int], width: int, dtype: torch.dtype, device: torch.device) -> KVStore:
    if kind == "kivi":
        chosen = KVKind("kivi", *bits)
        return KiviStore(chosen, [(KV_HEADS, width)], PAGES, PAGES, dtype, device)
    if kind != "dense":
        return TokenPackedStore(kind, [(KV_HEADS, width)], PAGES, device)
    return DenseKVStore([(KV_HEADS, width)], PAGES, dtype, device)


def _tensors(kv: PackedKV) -> list[Tensor]:
    own = [tensor for tensor in (kv.k, kv.v, kv.k_meta, kv.v_meta) if tensor is not None]
    return own if kv.recent is None else own + _tensors(kv.recent)

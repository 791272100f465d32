"""Attention over keys in several memories: each part is computed where it lives, and only results travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from engine.attention.interface import AttnSpec, KeyRange, ModelAttention, merge
from engine.cache.packed import PackedKV
from engine.core.batch import Batch


class Place(NamedTuple):
    """Some of the keys of a batch's rows. The batch is on the arenas' device, its pages are theirs.

    Indices stay those of the sequences: pages of keys outside `keys` are not read and may be 0.
    """

    kv: PackedKV
    batch: Batch
    keys: KeyRange
    group: int = 0


def attend_across(
    q: Tensor, places: Sequence[Place], spec: AttnSpec, attention: ModelAttention
) -> tuple[Tensor, Tensor]:
    """Attend q [T, H, d_k] to disjoint keys: o [T, H, d_v] and lse [T, H], both on the device of q.

    A query and its result are a few kilobytes a row, where its keys are megabytes. Devices begin before the host does,
    so that they work while it does.
    """
    order = sorted(places, key=lambda place: place.kv.k.device.type == "cpu")
    result: tuple[Tensor, Tensor] | None = None
    found = []
    for kv, batch, keys, group in order:
        o, lse = attention.attend(q.to(kv.k.device, non_blocking=True), kv, spec, batch, group, True, keys)
        assert lse is not None, "asked for"
        found.append((o, lse))
    for o, lse in found:
        here = o.to(q.device), lse.to(q.device)
        result = here if result is None else merge(*result, *here)
    if result is None:
        raise ValueError("attention over no keys at all")
    return result

"""Rotation of a step's queries and keys, and the write of its keys and values to the cache: on a GPU by one kernel."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from engine.cache.stores.packed import Placement
from engine.cache.stores.store import KVStore
from engine.cache.techniques.quest.store import QuestStore
from engine.compute.attention.rotation import RotaryStep, rotate
from engine.compute.attention.triton import pack, pack_trial, quest, quest_trial


def write_rotated(
    store: KVStore,
    layer: int,
    qk: Tensor,
    heads: int,
    v: Tensor,
    rope: RotaryStep | None,
    to: Placement,
    mixed: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Rotate ``qk [T, heads + H_kv, d]``, store its keys and ``v [T, H_kv, d_v]``; returns queries ``[T, heads, d]``.

    ``rope`` None: nothing rotates. ``mixed`` is then done to queries and keys (`engine.compute.layers.hadamard`).
    """
    store, layer, to = store.resolve(layer, to)
    if mixed is not None:
        qk, rope = mixed(qk if rope is None else rotate(qk, rope)), None
    if qk.is_cuda and declines(store, layer, qk, rope) is None:
        return _by_kernels(store, layer, qk, heads, v, rope, to)
    turned = qk if rope is None else rotate(qk, rope)
    q, k = turned.split((heads, turned.shape[1] - heads), 1)
    store.write(layer, k, v, to, None if rope is None else rope.library)
    return q


def declines(store: KVStore, layer: int, qk: Tensor, rope: RotaryStep | None) -> str | None:
    """Reason no kernel rotates and writes; None where one does, proven on this device."""
    if not store.written_by_kernels:
        return f"it does not know how {type(store).__name__} writes"
    width, turns = qk.shape[2], 0 if rope is None else rope.width
    kv = store.view(layer)
    reason = pack_trial.disagrees(kv.kind, (kv.k_bits, kv.v_bits), width, turns, qk.dtype, qk.device)
    if reason is None and kv.bounds is not None:
        reason = quest_trial.disagrees(width, False, qk.dtype, qk.device)
    return reason


def _by_kernels(
    store: KVStore, layer: int, qk: Tensor, heads: int, v: Tensor, rope: RotaryStep | None, to: Placement
) -> Tensor:
    kv = store.view(layer)
    q, k = qk.split((heads, qk.shape[1] - heads), 1)
    if kv.recent is None:
        q = pack.write(q, k, v, rope, to.slots[0], kv)
    else:
        q = pack.write(q, k, v, rope, to.slots[1], kv.recent)
        if to.flush is not None:
            pack.flush(kv, to.flush)
    if kv.bounds is not None and isinstance(store, QuestStore):
        quest.bound_pages(kv, store.written_pages(to, v.shape[0]))
    return q

"""Choice of an attention backend from an ordered list of those that may decline, reference last; merge of parts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.cache.stores.packed import PackedKV
from engine.cache.stores.store import KVStore
from engine.compute.attention.backends.batch_invariant import BatchInvariantAttention
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.cascade import Shared, clusters_of, find_shared
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec, KeyRange, NewRows, merge
from engine.compute.attention.memo import PerBatch
from engine.compute.attention.parts import AttentionPart, parts_of
from engine.compute.attention.quest import QuestAttention
from engine.compute.attention.rotation import RotaryStep
from engine.compute.attention.triton import merging
from engine.compute.attention.triton.backend import TritonAttention
from engine.compute.batch import Batch, HostShape


class BackendChoice(NamedTuple):
    """The backend for a problem, and those before it with their reasons to decline."""

    backend: AttentionBackend
    declined: list[tuple[str, str]]


class NumericMode(Protocol):
    """The live switches that attention consults at every call (`engine.compute.layers.numerics.Numerics`)."""

    batch_invariant: bool
    cascade: bool


def backends() -> list[AttentionBackend]:
    """New backends in order of preference."""
    return [NativeAttention(), TritonAttention(), SdpaAttention(), BatchInvariantAttention(), ReferenceAttention()]


def choose(problem: AttnProblem, candidates: Sequence[AttentionBackend] | None = None) -> BackendChoice:
    """The first backend that does not decline. Raises ValueError if all do, with what each said."""
    declined: list[tuple[str, str]] = []
    for backend in backends() if candidates is None else candidates:
        reason = backend.declines(problem)
        if reason is None:
            return BackendChoice(backend, declined)
        declined.append((backend.name, reason))
    said = "; ".join(f"{name}: {reason}" for name, reason in declined)
    raise ValueError(f"No attention backend serves this model ({said}). Choose another KV cache kind.")


class AttentionDispatcher:
    """The attention of one model: gives each call to the backend chosen for its problem, remembered by its traits."""

    def __init__(
        self, numerics: NumericMode | None = None, candidates: Sequence[AttentionBackend] | None = None
    ) -> None:
        """Without `numerics` the batch-invariant backend is never chosen, and no keys are read once for several."""
        self._numerics = numerics
        self._candidates = backends() if candidates is None else list(candidates)
        self._chosen: dict[tuple[object, ...], AttentionBackend] = {}
        self._shared: PerBatch[Shared | None] = PerBatch()
        self._parts: PerBatch[tuple[list[AttentionPart], KeyRange | None]] = PerBatch()
        self.quest = QuestAttention()
        self.uncaptured = ""
        """Reason the calls since it was last emptied cannot be captured in a graph; "" if they can."""
        self.keys_saved = 0
        """Readings of a key that cascades have saved so far, counted in each layer."""

    def attend(
        self,
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int = 0,
        need_lse: bool = False,
        keys: KeyRange | None = None,
        sink_q: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Implements `ModelAttention.attend`."""
        if kv.bounds is not None and batch.views is not None and batch.views.sparse is not None:
            assert keys is None, "pages are chosen of all that is before a row"
            others = functools.partial(self._attend_parts, q, kv, spec, batch, group, need_lse, sink_q=sink_q)
            budgets, invariant = batch.views.sparse, self._invariant
            return self.quest.attend_parts(others, q, kv, spec, batch, budgets, group, need_lse, invariant)
        if batch.views is not None or kv.recent is not None:
            return self._attend_parts(q, kv, spec, batch, group, need_lse, keys, sink_q)
        shared = self._find_shared(q, kv, spec, batch, group) if keys is None else None
        if shared is not None:
            return self._attend_shared(q, kv, spec, batch, group, need_lse, shared)
        return self._backend(q, kv, spec, batch).attend(q, kv, spec, batch, group, need_lse, keys)

    def attend_new(
        self,
        store: KVStore,
        layer: int,
        qk: Tensor,
        heads: int,
        v: Tensor,
        rope: RotaryStep | None,
        spec: AttnSpec,
        batch: Batch,
        need_lse: bool = False,
    ) -> tuple[Tensor, Tensor | None] | None:
        """Implements `ModelAttention.attend_new`."""
        if batch.views is not None or batch.host.max_rows != 1:
            return None
        group = store.group_of(layer)
        store, layer, to = store.resolve(layer, batch.placement)
        kv = store.view(layer)
        q, k = qk.split((heads, qk.shape[1] - heads), 1)
        if not store.written_by_kernels or kv.recent is not None or kv.bounds is not None:
            return None  # not at all, or more than the rows
        if self._find_shared(q, kv, spec, batch, group) is not None:
            return None
        new = NewRows(k, v, rope, to.slots[0])
        return self._backend(q, kv, spec, batch).attend_new(q, new, kv, spec, batch, group, need_lse)

    def shares_keys(self, host: HostShape) -> bool:
        """Implements `ModelAttention.shares_keys`."""
        return self._cascades and next(clusters_of(host, 0), None) is not None

    def _backend(
        self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, shared: bool = False, ahead: bool = False
    ) -> AttentionBackend:
        tree, invariant = batch.ancestors is not None, self._invariant
        widths, per_kv = (q.shape[2], kv.v_dim), q.shape[1] // kv.kv_heads
        key = (spec, kv.kind, kv.k_bits, kv.v_bits, q.dtype, kv.k.dtype, widths, per_kv, tree, invariant, shared, ahead)
        backend = self._chosen.get(key)
        if backend is None:
            traits = (q.device.type, q.dtype, spec, kv.kind, tree, invariant, widths, per_kv)
            problem = AttnProblem(*traits, kv_dtype=kv.k.dtype, shared=shared, ahead=ahead)
            backend = self._chosen[key] = choose(problem, self._candidates).backend
        if not backend.captures:
            self.uncaptured = f"the attention backend {backend.name} plans each step on the host"
        return backend

    def _attend_parts(
        self,
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int,
        need_lse: bool,
        keys: KeyRange | None,
        sink_q: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The parts of a restricted batch, merged in their order."""
        made = self._parts.of(batch)
        form = (id(keys), kv.recent is not None, spec.window)
        if form not in made:
            # Ranges are made once a step, because backends keep their plans by them.
            made[form] = (parts_of(batch.views, keys, kv.recent is not None, spec.window), keys)
        parts = made[form][0]
        result: tuple[Tensor, Tensor | None] | None = None
        for part in parts:
            own_q = sink_q if part.sinks else q
            own_kv, own_group = (kv.recent, 1) if part.recent else (kv, group)
            assert own_q is not None, "the layer gives the sinks' queries where there are sinks"
            assert own_kv is not None, "only where there are recent tokens"
            ahead, lse = part.keys is not None and part.keys.ahead, need_lse or len(parts) > 1
            backend = self._backend(own_q, own_kv, spec, batch, ahead=ahead)
            found = backend.attend(own_q, own_kv, spec, batch, own_group, lse, part.keys)
            result = found if result is None else self._merged(result, found)
        assert result is not None, "there is a part at least"
        return result[0], result[1] if need_lse else None

    def _attend_shared(
        self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, group: int, need_lse: bool, shared: Shared
    ) -> tuple[Tensor, Tensor | None]:
        """Every row's own keys, merged with those that it shares."""
        self.keys_saved += shared.saved
        out, lse = self._backend(q, kv, spec, batch).attend(q, kv, spec, batch, group, True, shared.own)
        assert lse is not None, "asked for"
        mine, rows = q.index_select(0, shared.rows), shared.rows
        spec = spec._replace(window=None)
        far = self._backend(mine, kv, spec, shared.batch).attend(mine, kv, spec, shared.batch, 0, True, shared.keys)
        o, merged = self._merged(far, (out.index_select(0, rows), lse.index_select(0, rows)))
        assert merged is not None, "both parts have it"
        return out.index_copy_(0, rows, o), lse.index_copy_(0, rows, merged) if need_lse else None

    def _find_shared(self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, group: int) -> Shared | None:
        """None where the option is off, in the batch-invariant mode, where a window hides keys, or where the backend in
        use would not serve the shared part.
        """
        if not self._cascades or batch.host.frozen:
            return None
        if batch.host.S < 2 or (spec.window is not None and spec.window < batch.host.max_kv):
            return None
        found = self._shared.of(batch)
        if group not in found:
            found[group] = find_shared(batch, group)
        if found[group] is None:
            return None
        usual, best = (self._backend(q, kv, spec, batch, shared=shared) for shared in (False, True))
        return found[group] if usual is best else None

    def _merged(self, a: tuple[Tensor, Tensor | None], b: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
        """Both with lse. Row by row where bits must not depend on how many there are (`numerics.by_row` says why)."""
        assert a[1] is not None, "asked for"
        assert b[1] is not None, "asked for"
        if not self._invariant:
            by_kernel = merging.serves(a[0], a[1], b[0], b[1])
            return (merging.merge if by_kernel else merge)(a[0], a[1], b[0], b[1])
        rows = [merge(*row) for row in zip(a[0].split(1), a[1].split(1), b[0].split(1), b[1].split(1), strict=True)]
        return torch.cat([o for o, _ in rows]), torch.cat([lse for _, lse in rows])

    @property
    def _cascades(self) -> bool:
        return self._numerics is not None and self._numerics.cascade and not self._numerics.batch_invariant

    @property
    def _invariant(self) -> bool:
        return self._numerics is not None and self._numerics.batch_invariant

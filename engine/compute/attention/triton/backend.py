"""Attention on a GPU by Kvasir's own Triton kernels: pages are read where they lie, codes are unpacked in registers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.packed import BYTE_KINDS, PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.cache.stores.transfer import on_device
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec, KeyRange, NewRows
from engine.compute.attention.memo import PerBatch
from engine.compute.attention.rotation import RotaryStep
from engine.compute.attention.triton import launch, trial
from engine.compute.batch import Batch
from engine.compute.native.proof import machine_declines

WIDEST = {"latent": 1024}
"""Channels of a head; 256 for other kinds."""


WRITTEN = ("dense", *BYTE_KINDS, "int4")
"""Kinds whose rows attention itself may write."""


def _traits(q: Tensor, kv: PackedKV, spec: AttnSpec, turns: int = 0) -> trial.AttnTraits:
    """AttnTraits of queries like q [T, H, d] over chains."""
    window, softcap = spec.window is not None, spec.softcap is not None
    widths, per_kv = (kv.k_dim, kv.v_dim), q.shape[1] // kv.kv_heads
    return trial.AttnTraits(kv.kind, widths, q.dtype, window, softcap, turns=turns, per_kv=per_kv)


class TritonAttention(AttentionBackend):
    """Every kind of arena; of "kivi" the packed body, with ranges that stop where it ends."""

    name = "triton"
    captures = True

    def __init__(self) -> None:
        self._ranges: PerBatch[tuple[Tensor, np.ndarray]] = PerBatch()
        self._plans: PerBatch[launch.LaunchPlan] = PerBatch()
        self._arrived: dict[torch.device, Tensor] = {}

    def declines(self, problem: AttnProblem) -> str | None:
        """It needs a GPU on which it has proved itself, and rounds as keys are split."""
        if problem.device != "cuda":
            return "the model is not on a GPU"
        if problem.batch_invariant:
            return "its last bits depend on how keys are split"
        if problem.ahead:
            return "its rows see no keys after their own"
        if problem.kind not in (*PLAIN_KINDS, *PACKED_KINDS):
            return f"cannot read the KV kind {problem.kind}"
        k_dim, v_dim = problem.head_dims
        if max(k_dim, v_dim) > WIDEST.get(problem.kind, 256) or k_dim % 8 or v_dim % 8:
            return f"it has no heads of {k_dim} and {v_dim}"
        if not torch.cuda.is_available():
            return "PyTorch finds no GPU"
        device = torch.device("cuda", torch.cuda.current_device())
        reason = machine_declines(problem.dtype, device)
        if reason is not None:
            return reason
        window, softcap = problem.spec.window is not None, problem.spec.softcap is not None
        traits = trial.AttnTraits(problem.kind, problem.head_dims, problem.dtype, window, softcap, problem.tree)
        return trial.disagrees(traits._replace(per_kv=problem.heads_per_kv), device)

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
        first, stop = (None, None) if keys is None else (self._there(part, batch) for part in keys[:2])
        q = launch.with_whole_heads(q)
        plans = self._plans.of(batch)
        form = (
            spec,
            group,
            need_lse,
            q.shape[1:],
            q.stride(),
            kv.kind,
            kv.k_bits,
            kv.v_bits,
            kv.v.shape,
            id(first),
            id(stop),
        )
        plan = plans.get(form)
        if plan is None:
            cut = launch.cut_of(q, kv, spec, batch, first, stop)
            arrived = self._arrivals(q, kv, spec, batch, cut)
            plan = plans[form] = launch.plan(q, kv, spec, batch, group, need_lse, first, stop, cut, arrived)
        return launch.run(plan, q, kv, need_lse)

    def declines_new(
        self, q: Tensor, kv: PackedKV, rope: RotaryStep | None, spec: AttnSpec, batch: Batch
    ) -> str | None:
        """Reason :meth:`attend_new` does not serve queries like q [T, H, d]; None where it does."""
        k, v, _ = launch.layout(kv)
        per_kv = q.shape[1] // kv.kv_heads
        if kv.kind not in WRITTEN:
            return f"it does not write the KV kind {kv.kind}"
        if batch.host.max_rows != 1 or batch.ancestors is not None or per_kv > launch.DECODE_ROWS:
            return "a sequence has more than one new row, which other programs read"
        if k.rest or v.rest or q.stride(2) != 1 or not (q.is_meta or q.data_ptr() % 16 == 0):
            return f"it has no heads of {kv.k_dim} and {kv.v_dim}, or they do not lie as it reads them"
        return trial.writes_wrongly(_traits(q, kv, spec, 0 if rope is None else rope.width), q.device)

    def attend_new(
        self,
        q: Tensor,
        new: NewRows,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int = 0,
        need_lse: bool = False,
    ) -> tuple[Tensor, Tensor | None] | None:
        """Implements `AttentionBackend.attend_new`."""
        if self.declines_new(q, kv, new.rope, spec, batch) is not None:
            return None
        plans = self._plans.of(batch)
        form = (spec, group, need_lse, q.shape[1:], q.stride(), kv.kind, kv.v.shape, new.form)
        plan = plans.get(form)
        if plan is None:
            cut = launch.cut_of(q, kv, spec, batch)
            arrived = self._arrivals(q, kv, spec, batch, cut)
            plan = plans[form] = launch.plan(q, kv, spec, batch, group, need_lse, None, None, cut, arrived, new)
        return launch.run(plan, q, kv, need_lse, new)

    def _arrivals(self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, cut: launch.TileConfig) -> Tensor | None:
        """Counts of splits that have ended; None where their merge is a kernel of its own.

        They are made by the first step, none of which is captured, and every launch leaves them as it found them.
        """
        if batch.ancestors is not None or not launch.may_merge(q, kv, batch, cut):
            return None
        if trial.merges_wrongly(_traits(q, kv, spec), q.device) is not None:
            return None
        if q.device not in self._arrived:
            self._arrived[q.device] = trial.arrivals(q.device)
        return self._arrived[q.device]

    def _there(self, bounds: np.ndarray | None, batch: Batch) -> Tensor | None:
        """Bounds of a range on the device, copied at the first layer of a step that has them."""
        if bounds is None:
            return None
        made = self._ranges.of(batch)
        if id(bounds) not in made:  # the bounds are kept, so that no others are given their id
            short = np.clip(bounds, 0, np.iinfo(np.int32).max).astype(np.int32)
            made[id(bounds)] = on_device(batch.row_start.device, short), bounds
        return made[id(bounds)][0]

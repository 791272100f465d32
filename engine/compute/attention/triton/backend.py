"""Attention on a GPU by Kvasir's own Triton kernels: pages are read where they lie, codes are unpacked in registers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.packed import PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.cache.stores.transfer import on_device
from engine.compute.attention.interface import AttnProblem, AttnSpec, KeyRange
from engine.compute.attention.memo import PerBatch
from engine.compute.attention.triton import launch, trial
from engine.compute.batch import Batch
from engine.compute.native.proof import machine_declines

WIDEST = {"latent": 1024}
"""Channels of a head; 256 for other kinds."""


class TritonAttention:
    """Every kind of arena; of "kivi" the packed body, with ranges that stop where it ends."""

    name = "triton"
    captures = True

    def __init__(self) -> None:
        self._ranges: PerBatch[tuple[Tensor, np.ndarray]] = PerBatch()
        self._plans: PerBatch[launch.LaunchPlan] = PerBatch()

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
        traits = problem.kind, (k_dim, v_dim), window, softcap, problem.tree, problem.dtype, device
        return trial.disagrees(*traits, problem.heads_per_kv)

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
            plan = plans[form] = launch.plan(q, kv, spec, batch, group, need_lse, first, stop)
        return launch.run(plan, q, kv, need_lse)

    def _there(self, bounds: np.ndarray | None, batch: Batch) -> Tensor | None:
        """Bounds of a range on the device, copied at the first layer of a step that has them."""
        if bounds is None:
            return None
        made = self._ranges.of(batch)
        if id(bounds) not in made:  # the bounds are kept, so that no others are given their id
            short = np.clip(bounds, 0, np.iinfo(np.int32).max).astype(np.int32)
            made[id(bounds)] = on_device(batch.row_start.device, short), bounds
        return made[id(bounds)][0]

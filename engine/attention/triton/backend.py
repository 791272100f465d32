"""Attention on a GPU by Kvasir's own Triton kernels: pages are read where they lie, codes are unpacked in registers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.attention.interface import AttnProblem, AttnSpec, KeyRange
from engine.attention.triton import launch, trial
from engine.batch import Batch
from engine.cache.stores.packed import PLAIN_KINDS, PackedKV
from engine.native.proof import machine_declines

KINDS = (*PLAIN_KINDS, "int8", "int4", "kivi")
WIDEST = {"latent": 1024}
"""Channels of a head; 256 for other kinds."""


class TritonAttention:
    """Every kind of arena; of "kivi" the packed body, with ranges that stop where it ends."""

    name = "triton"

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._ranges: list[tuple[np.ndarray, Tensor]] = []

    def declines(self, problem: AttnProblem) -> str | None:
        """It needs a GPU on which it has proved itself, and rounds as keys are split."""
        if problem.device != "cuda":
            return "the model is not on a GPU"
        if problem.batch_invariant:
            return "its last bits depend on how keys are split"
        if problem.kind not in KINDS:
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
        return trial.disagrees(problem.kind, (k_dim, v_dim), window, softcap, problem.tree, problem.dtype, device)

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
        """See `AttentionBackend.attend`."""
        first, stop = (None, None) if keys is None else (self._there(part, batch) for part in keys)
        return launch.attend(q, kv, spec, batch, group, need_lse, first, stop)

    def _there(self, bounds: np.ndarray | None, batch: Batch) -> Tensor | None:
        """Bounds of a range on the device, copied at the first layer of a step that has them."""
        if bounds is None:
            return None
        if batch is not self._batch:
            self._batch = batch
            self._ranges.clear()
        for known, tensor in self._ranges:
            if known is bounds:
                return tensor
        tensor = torch.from_numpy(np.clip(bounds, 0, np.iinfo(np.int32).max).astype(np.int32))
        device = batch.row_start.device
        if device.type == "cuda":  # a copy from memory that is not pinned waits for the device
            tensor = tensor.pin_memory().to(device, non_blocking=True)
        self._ranges.append((bounds, tensor))
        return tensor

"""Attention in Kvasir's native code (engine/native/attention.c): steps whose sequences have a few rows each, on a CPU.

It reads pages where they lie, keeps weights and sums in float32, and serves decoding and the checking of drafted
chains; steps that read a prompt go to torch's fused kernels, which are faster for many rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.interface import AttnProblem, AttnSpec, KeyRange
from engine.attention.sdpa import SdpaAttention
from engine.cache.packed import PackedKV
from engine.core.batch import Batch
from engine.native.library import BFLOAT16, find

FEW_ROWS = 16
"""Up to so many rows of a sequence are attended one by one."""


class NativeAttention:
    """Few rows of each sequence; others through :class:`SdpaAttention`."""

    name = "native"

    def __init__(self) -> None:
        self._library, self._absent = find()
        self._many = SdpaAttention()
        self._batch: Batch | None = None
        self._rows: dict[tuple[int | None, int], Tensor] = {}

    def declines(self, problem: AttnProblem) -> str | None:
        """It reads dense bfloat16 of one width and knows chains only."""
        if problem.device != "cpu":
            return "the model is not on a CPU"
        if problem.dtype != torch.bfloat16:
            return f"it needs bfloat16 and the model runs in {str(problem.dtype).removeprefix('torch.')}"
        if self._library is None:
            return self._absent
        if not self._library.capabilities & BFLOAT16:
            return "this processor lacks AVX512-BF16"
        if problem.kind != "dense":
            return f"cannot read the KV kind {problem.kind}"
        if problem.tree:
            return "it knows no drafted trees"
        if problem.shared:
            return "keys that its rows share stay in the processor's cache, which is faster than a second call"
        width = problem.head_dims[0]
        if width % 32 or width > 256:
            return f"it has no heads of {width}"
        return self._many.declines(problem)

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
        if batch.host.max_rows > FEW_ROWS or keys is not None:
            return self._many.attend(q, kv, spec, batch, group, need_lse, keys)
        assert self._library is not None, "see declines"
        q = q.contiguous()
        out = torch.zeros_like(q) if q.shape[0] > batch.host.T else torch.empty_like(q)
        lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32) if need_lse else None
        rows = self._rows_of(batch, spec.window, group)
        self._library.attend(q, kv.k, kv.v, batch.page_table[group], rows, spec.scale, out, lse)
        return out, lse

    def _rows_of(self, batch: Batch, window: int | None, group: int) -> Tensor:
        """[T, 3] int64, made at the first such layer of a step: where a row's pages begin, its keys [first, stop)."""
        if batch is not self._batch:
            self._batch = batch
            self._rows.clear()
        rows = self._rows.get((window, group))
        if rows is None:
            host, width = batch.host, batch.page_table.stride(1)
            found = [
                (s * width, 0 if window is None else max(0, stop - window), stop)
                for s in range(host.S)
                for stop in range(host.kv_len[s] - host.row_start[s + 1] + host.row_start[s] + 1, host.kv_len[s] + 1)
            ]
            rows = self._rows[(window, group)] = torch.tensor(found, dtype=torch.int64)
        return rows

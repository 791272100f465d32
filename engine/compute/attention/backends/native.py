"""Attention in Kvasir's native code (native/attention.c), on a CPU: decoding, the checking of drafts, and prompts.

It reads pages where they lie and keeps weights and sums in float32. A row's bits depend on its keys alone; of packed
keys and values also on whether more than 16 rows of its sequence run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.packed import PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec, KeyRange
from engine.compute.attention.memo import PerBatch
from engine.compute.batch import Batch
from engine.compute.native import results
from engine.compute.native.attention import attend_of, rows_whole
from engine.compute.native.library import DTYPES, find

WIDEST, WIDEST_PACKED = 576, 256
"""The widest head of numbers, that of multi-head latent attention, and of codes."""


class _Rows(NamedTuple):
    """Keys that rows see, as `attend_of` takes them; ``keys`` are the limits that they were made by."""

    rows: Tensor
    trees: Tensor | None
    keys: KeyRange


class NativeAttention(AttentionBackend):
    """Chains of any number of rows, and drafted trees."""

    name = "native"
    captures = True

    def __init__(self) -> None:
        self._library, self._absent = find()
        self._rows: PerBatch[_Rows] = PerBatch()

    def declines(self, problem: AttnProblem) -> str | None:
        """It reads bfloat16 and the packed kinds, in heads of whole vectors."""
        if problem.device != "cpu":
            return "the model is not on a CPU"
        if problem.dtype not in DTYPES:
            return f"it needs bfloat16 or float32 and the model runs in {str(problem.dtype).removeprefix('torch.')}"
        if self._library is None:
            return self._absent
        kept = problem.kv_dtype or problem.dtype
        if problem.kind in PLAIN_KINDS and kept != torch.bfloat16:
            return f"it reads keys and values in bfloat16 and these are in {str(kept).removeprefix('torch.')}"
        if problem.shared:
            return "keys that its rows share stay in the processor's cache, which is faster than a second call"
        if problem.batch_invariant:
            return "a drafted tree's rows have other last bits than a chain's"
        k_width, v_width = problem.head_dims
        if problem.kind not in PLAIN_KINDS and problem.kind not in PACKED_KINDS:
            return f"cannot read the KV kind {problem.kind}"
        widest = WIDEST_PACKED if problem.kind in PACKED_KINDS else WIDEST
        if k_width % 32 or v_width % 32 or max(k_width, v_width) > widest:
            return f"it has no heads of {k_width}" + ("" if k_width == v_width else f" and {v_width}")
        return None

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
        assert self._library is not None, "see declines"
        q = rows_whole(q)
        shape = (*q.shape[:2], kv.v_dim)
        out = q.new_zeros(shape) if q.shape[0] > batch.host.T else results.empty(shape, q.dtype)
        lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32) if need_lse else None
        rows, trees, _ = self._rows_of(batch, spec.window, keys)
        pages = batch.page_table[group]
        self._library.attend(attend_of(q, kv, pages, rows, spec.scale, out, lse, trees, spec.softcap))
        return out, lse

    def _rows_of(self, batch: Batch, window: int | None, keys: KeyRange | None) -> _Rows:
        """Made at the first such layer of a step."""
        made, keys = self._rows.of(batch), keys or KeyRange()
        key = (window, id(keys.first), id(keys.stop), keys.ahead)
        assert self._library is not None, "see declines"
        tables = (batch.row_start, batch.kv_len, batch.page_table.stride(1))
        if key not in made and batch.ancestors is not None:
            real = batch.row_start[: batch.host.S + 1], batch.kv_len[: batch.host.S], tables[2]
            rows, trees = self._library.tree_rows(*real, window, batch.ancestors[: batch.host.T], keys)
            made[key] = _Rows(rows, trees, keys)
        elif key not in made and batch.host.frozen:
            assert (keys.first, keys.stop) == (None, None), "a frozen batch has no limits"
            made[key] = _Rows(self._library.chain_rows(*tables, window, batch.host.T), None, keys)
        elif key not in made:  # the ranges are kept, so that no others are given their ids
            host = batch.host
            starts = np.asarray(host.row_start[: host.S + 1], dtype=np.int64)
            of_row = np.repeat(np.arange(host.S), np.diff(starts))
            index = np.arange(host.T) - starts[of_row + 1] + np.asarray(host.kv_len, dtype=np.int64)[of_row]
            seen = keys.of_chain(index, window)
            rows = torch.from_numpy(np.stack([of_row * batch.page_table.stride(1), *seen], axis=1))
            made[key] = _Rows(rows, None, keys)
        return made[key]

"""QUEST: each query head reads the pages whose keys may score highest, and the row's own page (arXiv 2406.10774).

With m and M the least and greatest of a page's keys in each channel, no key of the page scores more than
sum_c max(q_c m_c, q_c M_c), which is the product of [min(q, 0), max(q, 0)] and [m, M]. A row at index t ranks the pages
that end before its own begins; its own is always read, up to t.

Only the bounds and the chosen pages are read. Rows are independent: under batch-invariant numerics they run one by
one, so that every shape, and with it every bit, follows from the row's index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.base.devices import traits
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import PackedKV
from engine.cache.stores.transfer import on_device
from engine.compute.attention.interface import AttnSpec, KeyRange
from engine.compute.attention.memo import PerBatch
from engine.compute.attention.triton import quest as kernels
from engine.compute.attention.triton import quest_trial
from engine.compute.batch import Batch
from engine.compute.native.attention import attend_of, rows_whole
from engine.compute.native.library import DTYPES, find

BLOCK_BYTES = 32 << 20
"""The most bytes of keys that are gathered at a time for rows of one sequence."""


class Rows(NamedTuple):
    """Neighbouring rows of one sequence that read the same number of pages."""

    row: int  # the first of them in the batch
    stop: int  # the row after the last
    first: int  # the first's index in its sequence
    sequence: int
    chosen: int  # pages that each head reads, the row's own among them

    @property
    def pages(self) -> int:
        """Pages of the sequence up to the last row's own."""
        return (self.first + self.stop - self.row - 1) // PAGE_SIZE + 1

    @property
    def ranked(self) -> int:
        """Pages whose bounds are looked at: none where there is no choice."""
        return self.pages - 1 if 1 < self.chosen < self.pages else 0


class QuestAttention:
    """Attention over chosen pages of a dense store with bounds. `bytes_read` counts what it has read of the arenas."""

    name = "quest"

    def __init__(self) -> None:
        self.bytes_read = 0
        self.watched: list[Tensor] | None = None
        """A list makes pages be chosen by their definition, and the pages that each layer chose are added to it:
        [R, H, n], as places in the sequence."""
        self._library, _ = find()
        self._splits: PerBatch[tuple[Tensor, KeyRange]] = PerBatch()
        self._plans: PerBatch[tuple[np.ndarray, Tensor, Tensor]] = PerBatch()
        self._choices: PerBatch[tuple[np.ndarray, _Choices]] = PerBatch()

    def attend(
        self,
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        budgets: np.ndarray,
        group: int = 0,
        invariant: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Attend the rows of q [T, H, d] whose `budgets` (host, pages to read, for each real row) are not 0.

        Returns o [R, H, d] in the dtype of q and lse [R, H] float32 of these rows in their order. Raises ValueError
        for rows of a drafted tree: pages are chosen for a chain.
        """
        assert kv.bounds is not None, "a layer that reads everything"
        page_bytes = _page_bytes(q, kv)
        defined = invariant or self.watched is not None
        if not defined and self._serves(q, kv):
            return self._natively(q, kv, spec, batch, budgets, group)
        if not defined and kernels_decline(q, kv, spec) is None:
            return self._by_kernels(q, kv, spec, batch, budgets, group)
        outs, lses = [q.new_empty(0, q.shape[1], kv.v_dim)], [q.new_empty(0, q.shape[1], dtype=torch.float32)]
        for rows in _blocks(batch, budgets, page_bytes, invariant):
            table = batch.page_table[group, rows.sequence, : rows.pages].long()
            queries = q[rows.row : rows.stop].float().contiguous()
            chosen = choose_pages(queries, kv.bounds, table, rows)
            if self.watched is not None:
                self.watched.append(chosen)
            o, lse = _attend_chosen(queries, kv, table[chosen], rows, spec)
            outs.append(o.to(q.dtype))
            lses.append(lse)
            self.bytes_read += rows.ranked * _bounds_bytes(kv) + chosen.shape[0] * rows.chosen * page_bytes
        return torch.cat(outs), torch.cat(lses)

    def attend_parts(
        self,
        others: Callable[[KeyRange | None], tuple[Tensor, Tensor | None]],
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        budgets: np.ndarray,
        group: int = 0,
        need_lse: bool = False,
        invariant: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Same as `AttentionBackend.attend`: rows with a budget by `attend`, and all others by `others`.

        `others` is given the range that leaves out the rows with a budget.
        """
        chooses = budgets > 0
        if not chooses.any():
            return others(None)
        made = self._splits.of(batch)
        if not made:
            rows = on_device(q.device, np.flatnonzero(chooses).tolist())
            made[None] = (rows, KeyRange(stop=np.where(chooses, 0, batch.host.max_kv)))
        rows, keys = made[None]
        o, lse = self.attend(q, kv, spec, batch, budgets, group, invariant)
        if rows.shape[0] == q.shape[0]:
            return o, lse if need_lse else None
        out, out_lse = others(keys)
        out.index_copy_(0, rows, o)
        if out_lse is not None:
            out_lse.index_copy_(0, rows, lse.to(out_lse.dtype))
        return out, out_lse

    def _serves(self, q: Tensor, kv: PackedKV) -> bool:
        """Return True if native code serves this call (engine/compute/native/quest.c)."""
        width = q.shape[2]
        fits = width % 32 == 0 and width <= 256 and kv.v_dim == width
        known = q.dtype in DTYPES and kv.k.dtype == torch.bfloat16
        return self._library is not None and fits and known and q.device.type == "cpu"

    def _natively(
        self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, budgets: np.ndarray, group: int
    ) -> tuple[Tensor, Tensor]:
        assert self._library is not None, "see _serves"
        assert kv.bounds is not None, "a layer that reads everything"
        made, key = self._plans.of(batch), (group, id(budgets))
        if key not in made:  # the same for all layers of a step; the budgets are kept, so that no others have their id
            made[key] = (budgets, *_rows(batch, budgets, batch.page_table.stride(1)))
        _, where, rows = made[key]
        q = q.index_select(0, where) if where.shape[0] < q.shape[0] else rows_whole(q)
        out, lse = q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)
        table = batch.page_table[group]
        self._library.attend_chosen(
            attend_of(q, kv, table, rows, spec.scale, out, lse, softcap=spec.softcap), kv.bounds
        )
        chosen, own = rows[:, 1], (rows[:, 2] - 1) // PAGE_SIZE
        ranked = int(own[(chosen > 1) & (chosen <= own)].sum())
        self.bytes_read += ranked * _bounds_bytes(kv) + int(chosen.sum()) * _page_bytes(q, kv)
        return out, lse

    def _by_kernels(
        self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, budgets: np.ndarray, group: int
    ) -> tuple[Tensor, Tensor]:
        assert kv.bounds is not None, "a layer that reads everything"
        made, key = self._choices.of(batch), (group, id(budgets))
        if key not in made:  # as in _natively
            made[key] = (budgets, _choices(batch, budgets, q))
        _, choices = made[key]
        self.bytes_read += choices.ranked * _bounds_bytes(kv) + choices.read * _page_bytes(q, kv)
        pages = kernels.choose_pages(q, kv.bounds, batch, choices.most, group)
        o, lse = kernels.attend_pages(q, kv, spec, batch, pages, choices.limits, group, need_lse=True)
        assert lse is not None, "asked for"
        rows = choices.rows
        return (o, lse) if rows is None else (o.index_select(0, rows), lse.index_select(0, rows))


class _Choices(NamedTuple):
    """Kernel arguments that describe a step's rows, the same for all layers."""

    rows: Tensor | None
    """[R] int64: those with a budget; None: all."""
    limits: Tensor
    """[T] int32: how many pages each head of a row reads; 0 where the row has no budget."""
    most: int
    read: int
    """Pages that all rows read."""
    ranked: int
    """Pages whose bounds they look at."""


def kernels_decline(q: Tensor, kv: PackedKV, spec: AttnSpec) -> str | None:
    """Reason Triton's kernels do not choose and read the pages; None where they do, proven on this device."""
    if not traits(q.device).kernels:
        return "the model is not on a GPU"
    if kv.v_dim != q.shape[2] or spec.window is not None:
        return "it has no values of another width than the keys', and no windows"
    return quest_trial.disagrees(q.shape[2], spec.softcap is not None, q.dtype, q.device)


def choose_pages(q: Tensor, bounds: Tensor, table: Tensor, rows: Rows) -> Tensor:
    """The pages [R, H, n] that each head of q [R, H, d] float32 reads, as indices into `table` in rising order.

    The row's own page is the last. Of pages that score the same the earlier is chosen.
    """
    count, heads, _ = q.shape
    own = (rows.first + torch.arange(count, device=q.device)) // PAGE_SIZE
    last = own[:, None, None].expand(count, heads, 1)
    ranked, wanted = rows.ranked, rows.chosen - 1
    if not ranked:
        return torch.cat((torch.arange(wanted, device=q.device).expand(count, heads, wanted), last), -1)
    scores = page_scores(q, bounds.index_select(0, table[:ranked]))
    pages = torch.arange(ranked, device=q.device)
    keys = _ordered(scores) * (1 << 32) + (ranked - pages)
    keys = keys.masked_fill(pages >= own[:, None, None], torch.iinfo(torch.int64).min)
    best = keys.topk(wanted, dim=-1).indices.sort(dim=-1).values
    return torch.cat((best, last), -1)


def page_scores(q: Tensor, bounds: Tensor) -> Tensor:
    """q [R, H, d] float32 and the bounds of pages [P, H_kv, 2 * d] -> [R, H, P], not less than any q·k of the page.

    (By its definition; the sum is float32.)
    """
    rows, heads, width = q.shape
    pages, kv_heads, _ = bounds.shape
    signed = torch.cat((q.clamp(max=0), q.clamp(min=0)), -1)
    grouped = signed.view(rows, kv_heads, heads // kv_heads, -1).transpose(0, 1).reshape(kv_heads, -1, 2 * width)
    scores = torch.bmm(grouped, bounds.permute(1, 2, 0).float())
    return scores.view(kv_heads, rows, -1, pages).transpose(0, 1).reshape(rows, heads, pages)


def _ordered(scores: Tensor) -> Tensor:
    """Integers (int64, within 32 bits) that are ordered as the float32 numbers are."""
    bits = (scores + 0.0).view(torch.int32)  # -0 becomes 0
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()


def _attend_chosen(q: Tensor, kv: PackedKV, pages: Tensor, rows: Rows, spec: AttnSpec) -> tuple[Tensor, Tensor]:
    """q [R, H, d] float32 over its pages [R, H, n] -> o [R, H, d_v], lse [R, H] float32."""
    count, heads, _ = q.shape
    k, v = _gather(kv.k, pages), _gather(kv.v, pages)
    scores = torch.bmm(k, q.view(count * heads, -1, 1)).view(count, heads, -1) * spec.scale
    if spec.softcap is not None:
        scores = (scores / spec.softcap).tanh() * spec.softcap
    index = rows.first + torch.arange(count, device=q.device)
    slot = torch.arange(PAGE_SIZE, device=q.device)
    after = slot > (index % PAGE_SIZE)[:, None]
    scores[..., -PAGE_SIZE:].masked_fill_(after[:, None], -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp_()
    return torch.bmm(weights.view(count * heads, 1, -1), v).view(count, heads, -1), lse


def _gather(arena: Tensor, pages: Tensor) -> Tensor:
    """Pages [R, H, n] of an arena [slots, H_kv, d], each of its query head's KV head -> [R * H, n * 16, d] float32."""
    slots, kv_heads, width = arena.shape
    rows, heads, count = pages.shape
    kv_head = torch.arange(heads, device=pages.device) // (heads // kv_heads)
    slot = pages[..., None] * PAGE_SIZE + torch.arange(PAGE_SIZE, device=pages.device)
    at = slot * kv_heads + kv_head[:, None, None]
    taken = arena.view(slots * kv_heads, width).index_select(0, at.view(-1))
    return taken.view(rows * heads, count * PAGE_SIZE, width).float()


def _page_bytes(q: Tensor, kv: PackedKV) -> int:
    """Bytes of keys and values in one page for each head of a row."""
    return q.shape[1] * PAGE_SIZE * (kv.k_dim + kv.v_dim) * kv.k.element_size()


def _bounds_bytes(kv: PackedKV) -> int:
    """Bytes of one page's bounds."""
    return 2 * kv.kv_heads * kv.k_dim * kv.k.element_size()


def _rows(batch: Batch, budgets: np.ndarray, width: int) -> tuple[Tensor, Tensor]:
    """The rows with a budget [R]; for each, where its pages begin in a table so wide, how many it reads, its stop."""
    where, found = [], []
    for rows in _blocks(batch, budgets, BLOCK_BYTES, True):
        where.append(rows.row)
        found.append((rows.sequence * width, rows.chosen, rows.first + 1))
    return torch.tensor(where, dtype=torch.int64), torch.tensor(found, dtype=torch.int64).view(-1, 3)


def _choices(batch: Batch, budgets: np.ndarray, q: Tensor) -> _Choices:
    found = list(_blocks(batch, budgets, BLOCK_BYTES, True))
    limits = np.zeros(q.shape[0], dtype=np.int32)
    limits[[rows.row for rows in found]] = [rows.chosen for rows in found]
    return _Choices(
        None if len(found) == q.shape[0] else on_device(q.device, [rows.row for rows in found]),
        on_device(q.device, limits),
        int(limits.max()),
        int(limits.sum()),
        sum(rows.ranked for rows in found),
    )


def _blocks(batch: Batch, budgets: np.ndarray, page_bytes: int, invariant: bool) -> Iterator[Rows]:
    """The rows with a budget, in blocks that run together."""
    host = batch.host
    for s in range(host.S):
        begin, end = host.row_start[s], host.row_start[s + 1]
        prefix = host.kv_len[s] - (end - begin)
        if host.trees and host.trees[s] and budgets[begin:end].any():
            raise ValueError("QUEST chooses pages for chains of tokens, not for drafted trees.")
        row = begin
        while row < end:
            index = prefix + row - begin
            chosen = _readable(budgets[row], index)
            most = 1 if invariant or not chosen else max(1, BLOCK_BYTES // (chosen * page_bytes))
            stop = row + 1
            while stop < min(end, row + most) and _readable(budgets[stop], prefix + stop - begin) == chosen:
                stop += 1
            if chosen:
                yield Rows(row, stop, index, s, chosen)
            row = stop


def _readable(budget: int, index: int) -> int:
    """Pages that a row at an index reads."""
    return min(int(budget), index // PAGE_SIZE + 1)

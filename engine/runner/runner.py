"""The one path by which the model runs: rows of sequences in, logits of the wanted rows out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.attention.interface import ModelAttention
from engine.batch import MAX_TREE_ROWS, Batch, ForwardOutput, HostShape, RowViews, SequenceRows
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.packed import Placement
from engine.cache.stores.store import KVStore
from engine.cache.stores.transfer import on_device
from engine.runner.buffers import Bucket, BucketPolicy, Buffers, PageTables, StepMemory, fill


class RunnableModel(Protocol):
    """What the runner needs of a model (`engine.models.base.CausalLM`)."""

    num_groups: int

    @property
    def num_layers(self) -> int: ...

    def forward(self, batch: Batch, kv: KVStore, attention: ModelAttention, **options: Any) -> ForwardOutput:
        """Run the model over the batch; the options are `layers`, `hidden_in` and `skip` of `Runner.forward`."""

    def logits(self, x: Tensor, rows: Tensor) -> Tensor:
        """The final norm and the head over the wanted `rows` [L] of `x` [T, hidden] -> [L, V]."""


class Runner:
    """Runs one model over its own arenas. Not thread-safe: the step loop owns it."""

    def __init__(
        self,
        model: RunnableModel,
        kv: KVStore,
        attention: ModelAttention,
        device: torch.device | str = "cpu",
        policy: BucketPolicy | None = None,
        context: int = 0,
    ) -> None:
        """`policy` rounds shapes to buckets; None takes the device's own. `context` is the length of the longest
        sequence, in tokens, where that is known."""
        self.model, self.kv, self.attention = model, kv, attention
        self.batch_seconds = 0.0  # host time that building the last batch took
        self._groups = max(model.num_groups, kv.num_groups)
        self._device = torch.device(device)
        self._buffers = Buffers(self._groups, self._device, policy)
        self._tables = PageTables(self._groups, self._device, pages_for(context))

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return self.model.num_layers

    def forward(
        self,
        rows: Sequence[SequenceRows],
        *,
        layers: tuple[int, int] | None = None,
        hidden_in: Tensor | None = None,
        want_hidden: frozenset[int] = frozenset(),
        skip: frozenset[int] = frozenset(),
    ) -> ForwardOutput:
        """Run the rows; logits [L, V] in the order of the sequences, each sequence's last `want_logits` rows in turn.

        `layers` = (start, stop) runs part of the model; `hidden_in` [T, hidden] replaces the embedding when start >
        0. `want_hidden` names layers whose input is returned, [T, hidden] each. The layers in `skip` do nothing. Raises
        ValueError for rows that their pages do not cover, for a sequence without rows and for a tree that is no tree.
        """
        began = time.perf_counter()
        batch = self.batch(rows, want_hidden)
        self.batch_seconds = time.perf_counter() - began
        options: dict[str, Any] = {} if layers is None else {"layers": layers}
        if hidden_in is not None:
            padding = batch.tokens.shape[0] - hidden_in.shape[0]
            options["hidden_in"] = torch.nn.functional.pad(hidden_in, (0, 0, 0, padding)) if padding else hidden_in
        if skip:
            options["skip"] = skip
        with torch.inference_mode():
            out = self.model.forward(batch, self.kv, self.attention, **options)
        return _without_padding(out, batch.host.T, batch.host.L)

    def logits(self, hidden: Tensor) -> Tensor:
        """What the model would say of streams [N, hidden] that left it after any layer: final norm and head, [N, V]."""
        with torch.inference_mode():
            return self.model.logits(hidden, torch.arange(hidden.shape[0], device=hidden.device))

    def batch(self, rows: Sequence[SequenceRows], want_hidden: frozenset[int] = frozenset()) -> Batch:
        """The batch of these rows, in static buffers: valid until the next one is built."""
        shape, row_start, kv_len = _shape(rows, self._groups)
        memory = self._buffers.take(shape)
        groups = range(self._groups)
        tables = [[row.pages if g == 0 else row.more_pages[g - 1] for row in rows] for g in groups]
        positions, ancestors = _positions(rows, shape.tree)
        tokens: list[int] = []
        wanted: list[int] = []
        for row, end in zip(rows, row_start[1:], strict=True):
            tokens += row.tokens
            wanted.extend(range(end - row.want_logits, end))
        fill(memory.host.tokens, tokens)
        fill(memory.host.positions, positions)
        fill(memory.host.want_logits, wanted)
        fill(memory.host.row_start, row_start, padding=shape.T)
        fill(memory.host.kv_len, kv_len)
        if shape.tree:
            fill(memory.host.ancestors, ancestors, padding=-1)
        first_slot = [_fill_slots(memory, g, rows, tables[g]) for g in groups]
        self._tables.reserve(memory.bucket.S, max(len(pages) for table in tables for pages in table))
        runs = [[self._tables.set(g, s, pages) * PAGE_SIZE for s, pages in enumerate(tables[g])] for g in groups]
        self._tables.point_at_scratch(range(shape.S, memory.bucket.S))
        changed = self._tables.send(memory)
        self._buffers.commit(memory)
        self._tables.apply(memory, changed)
        counts = [len(row.tokens) for row in rows]
        packs = self.kv.packs([row.start for row in rows], counts, tables)
        host = HostShape(
            T=shape.T,
            S=shape.S,
            L=shape.L,
            row_start=row_start,
            kv_len=kv_len,
            pages=tables,
            first_page=[
                [pages[0] if run >= n else -1 for pages, run, n in zip(table, run_of, kv_len, strict=True)]
                for table, run_of in zip(tables, runs, strict=True)
            ],
            max_rows=max(counts),
            max_kv=max(kv_len),
            trees=[row.parents is not None for row in rows] if shape.tree else (),
        )
        return Batch(
            tokens=memory.device.tokens,
            positions=memory.device.positions,
            placement=Placement(memory.device.slots, first_slot, packs, self._written(memory)),
            row_start=memory.device.row_start,
            kv_len=memory.device.kv_len,
            page_table=self._tables.device[:, : memory.bucket.S],
            ancestors=memory.device.ancestors if shape.tree else None,
            want_logits=memory.device.want_logits,
            want_hidden=want_hidden,
            host=host,
            views=self._views(rows, positions, memory.device.tokens),
        )

    def _written(self, memory: StepMemory) -> Tensor | None:
        """The pages that the rows write, for a store that looks at them."""
        if not self.kv.ranks_pages:
            return None
        return on_device(self._device, np.unique(memory.host.slots[0] // PAGE_SIZE))

    def _views(self, rows: Sequence[SequenceRows], positions: Sequence[int], like: Tensor) -> RowViews | None:
        """What the policies hide from the rows; None when they hide nothing in this step. `like` [T] is padded.

        Raises ValueError where rows choose pages and the store cannot rank them.
        """
        index = np.array(positions, dtype=np.int64)
        packed = self.kv.packed_until(index)
        if not any(row.policy is not None and row.policy.restricts(row.start + len(row.tokens)) for row in rows):
            return None if packed is None else RowViews(packed_until=packed)
        first, sinks, chosen = np.zeros_like(index), np.zeros_like(index), np.zeros_like(index)
        at = np.zeros(like.shape[0], dtype=np.int64)
        end = 0
        for row in rows:
            mine, end = slice(end, end + len(row.tokens)), end + len(row.tokens)
            if row.policy is not None:
                first[mine], sinks[mine], at[mine] = row.policy.sights(index[mine])
                pages = row.policy.chosen(index[mine])
                chosen[mine] = 0 if pages is None else pages
        if chosen.any() and not self.kv.ranks_pages:
            raise ValueError("Rows choose pages by bounds of their keys, and this KV cache keeps none.")
        return RowViews(
            first if first.any() else None,
            sinks if sinks.any() else None,
            on_device(like.device, at) if sinks.any() else None,
            packed_until=packed,
            sparse=chosen if chosen.any() else None,
        )


def _shape(rows: Sequence[SequenceRows], groups: int) -> tuple[Bucket, list[int], list[int]]:
    """The exact shape, row_start and kv_len; checks what would otherwise read or write a stranger's page."""
    if not rows:
        raise ValueError("a batch needs at least one sequence")
    row_start, kv_len = [0], []
    end = wanted = 0
    tree = False
    for row in rows:
        n = len(row.tokens)
        length = row.start + n
        if len(row.more_pages) < groups - 1:
            raise ValueError(f"the sequence has pages in {1 + len(row.more_pages)} of {groups} groups")
        for pages in (row.pages, *row.more_pages):
            if len(pages) * PAGE_SIZE < length:
                raise ValueError(f"{len(pages)} pages do not cover the {length} tokens of the sequence")
        if n == 0 or not 0 <= row.want_logits <= n:
            raise ValueError(f"{row.want_logits} logits wanted of {n} rows")
        tree = tree or row.parents is not None
        end += n
        wanted += row.want_logits
        row_start.append(end)
        kv_len.append(length)
    return Bucket(end, len(rows), wanted, tree), row_start, kv_len


def _positions(rows: Sequence[SequenceRows], tree: bool) -> tuple[list[int], list[int]]:
    """Position of every row (start + depth) and, if the batch has a tree, its ancestor bits (-1 for a chain)."""
    positions: list[int] = []
    ancestors: list[int] = []
    for row in rows:
        if row.parents is None:
            positions += range(row.start, row.start + len(row.tokens))
            if tree:
                ancestors += [-1] * len(row.tokens)
        else:
            depths, bits = _tree(row.parents, len(row.tokens))
            positions += [row.start + depth for depth in depths]
            ancestors += bits
    return positions, ancestors


def _tree(parents: Sequence[int], n: int) -> tuple[list[int], list[int]]:
    """Depth and ancestor bits (itself included, as signed 64 bits) of each row of a tree."""
    if len(parents) != n or n > MAX_TREE_ROWS:
        raise ValueError(
            f"a tree of {n} rows with {len(parents)} parents; at most {MAX_TREE_ROWS} rows, a parent for each"
        )
    depths: list[int] = []
    bits: list[int] = []
    for i, parent in enumerate(parents):
        if not -1 <= parent < i:
            raise ValueError(f"the parent of row {i} must be an earlier row or -1, not {parent}")
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        bits.append((bits[parent] if parent >= 0 else 0) | 1 << i)
    return depths, [b - (1 << 64) if b >> 63 else b for b in bits]


def _fill_slots(memory: StepMemory, group: int, rows: Sequence[SequenceRows], tables: Sequence[Sequence[int]]) -> int:
    """Write the slots of one group; returns the first slot if all of them are consecutive, else -1."""
    slots: list[int] = []
    for row, pages in zip(rows, tables, strict=True):
        start, n = row.start, len(row.tokens)
        if n == 1:
            slots.append(pages[start // PAGE_SIZE] * PAGE_SIZE + start % PAGE_SIZE)
            continue
        first, last = start // PAGE_SIZE, (start + n - 1) // PAGE_SIZE
        run = np.asarray(pages[first : last + 1], dtype=np.int64)[:, None] * PAGE_SIZE + np.arange(PAGE_SIZE)
        offset = start - first * PAGE_SIZE
        slots += run.ravel()[offset : offset + n].tolist()
    fill(memory.host.slots[group], slots)
    count = len(slots)
    if count < memory.bucket.T:
        return -1  # padding rows follow, whose slots are those of page 0
    if slots[-1] - slots[0] == count - 1 and (count == 1 or slots == list(range(slots[0], slots[0] + count))):
        return slots[0]
    return -1


def _without_padding(out: ForwardOutput, rows: int, wanted: int) -> ForwardOutput:
    logits = out.logits[:wanted] if out.logits.shape[0] > wanted else out.logits
    return ForwardOutput(logits, {layer: hidden[:rows] for layer, hidden in out.hidden.items()})

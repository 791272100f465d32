"""Inputs of a step on the device, made from the rows of its sequences and written into static memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE, pages_for, slots_of
from engine.cache.stores.states import StateRuns
from engine.cache.stores.transfer import on_device
from engine.cache.types import StateRun
from engine.compute.batch import MAX_TREE_ROWS, AdapterRows, SequenceRows
from engine.compute.runner.buffers import Bucket, BucketPolicy, Buffers, PageTables, StepMemory, fill


class StepShape(NamedTuple):
    """The exact sizes of a step, and where its sequences' rows and keys end."""

    sizes: Bucket
    row_start: list[int]
    kv_len: list[int]


class FilledStep(NamedTuple):
    """Values that were written, as the host knows them: see :class:`engine.compute.batch.HostShape`."""

    tables: list[list[Sequence[int]]]
    positions: list[int]
    first_slot: list[int]
    runs: list[list[int]]
    """Tokens on the first pages of each table that are consecutive."""


class StepInputs:
    """The static memory of one runner's steps."""

    def __init__(self, groups: int, device: torch.device, policy: BucketPolicy | None, context: int) -> None:
        """``context``: tokens of the longest sequence, where that is known."""
        self.groups = groups
        self.buffers = Buffers(groups, device, policy)
        self.tables = PageTables(groups, device, pages_for(context))
        self._runs: dict[Bucket, StateRuns] = {}

    @property
    def generation(self) -> tuple[int, int]:
        """Another one says that memory moved."""
        return self.buffers.generation, self.tables.generation

    def fill(
        self, rows: Sequence[SequenceRows], memory: StepMemory, shape: StepShape, tokens_there: Tensor | None = None
    ) -> FilledStep:
        """Write the rows into the memory of a bucket and send it. ``tokens_there [n]`` int64 are the tokens of the
        first n rows where only the device knows them."""
        groups = range(self.groups)
        tables = [[row.pages if g == 0 else row.more_pages[g - 1] for row in rows] for g in groups]
        positions, ancestors = _positions(rows, memory.bucket.tree)
        tokens: list[int] = []
        wanted: list[int] = []
        for row, end in zip(rows, shape.row_start[1:], strict=True):
            tokens += row.tokens
            wanted.extend(range(end - row.want_logits, end))
        fill(memory.host.tokens, tokens)
        fill(memory.host.positions, positions)
        fill(memory.host.want_logits, wanted)
        fill(memory.host.row_start, shape.row_start, padding=shape.sizes.T)
        fill(memory.host.kv_len, shape.kv_len)
        if memory.bucket.tree:
            fill(memory.host.ancestors, ancestors, padding=-1)
        first_slot = [_fill_slots(memory, g, rows, tables[g]) for g in groups]
        self.tables.reserve(memory.bucket.S, max(len(pages) for table in tables for pages in table))
        runs = [[self.tables.set(g, s, pages) * PAGE_SIZE for s, pages in enumerate(tables[g])] for g in groups]
        changed = self.tables.send(memory)
        self.buffers.commit(memory)
        self.tables.apply(memory, changed)
        if tokens_there is not None:
            memory.device.tokens[: tokens_there.shape[0]].copy_(tokens_there)
        return FilledStep(tables, positions, first_slot, runs)

    def frozen_runs(self, size: Bucket) -> StateRuns:
        """The memory that runs of states lie in where a bucket's steps are captured; never moved."""
        if size not in self._runs:
            self._runs[size] = StateRuns.frozen(size.T, size.S, size.tree)
        return self._runs[size]


def shape_of(rows: Sequence[SequenceRows], groups: int) -> StepShape:
    """The exact shape; checks what would otherwise read or write a stranger's page.

    Raises ValueError for rows that their pages do not cover, for a sequence without rows, and where there are none.
    """
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
    return StepShape(Bucket(end, len(rows), wanted, tree), row_start, kv_len)


def state_runs(rows: Sequence[SequenceRows], row_start: Sequence[int]) -> StateRuns:
    """Runs by which the rows of a step advance the states of their sequences.

    Raises ValueError where runs do not cover the rows, and for rows within a text that say nothing of its state.
    """
    runs = []
    for row in rows:
        if row.start and not row.states:
            raise ValueError("rows within a text go on from a state, and none was named")
        runs.append(row.states or (StateRun(len(row.tokens), 0, 0),))
        if sum(run.rows for run in runs[-1]) != len(row.tokens):
            raise ValueError(f"the runs of states do not cover the {len(row.tokens)} rows of the sequence")
    found = runs_of(runs)
    if all(row.parents is None for row in rows):
        return found
    parents = np.arange(-1, row_start[-1] - 1, dtype=np.int32)
    parents[found.runs[found.runs[:, 1] > found.runs[:, 0], 0]] = -1  # those that fill up a bucket may have no rows
    for row, start in zip(rows, row_start, strict=False):
        if row.parents is not None:  # row 0 is the last known token, and a run of its own
            parents[start + 1 : start + len(row.tokens)] = [start + up if up else -1 for up in row.parents[1:]]
    return found._replace(parents=parents)


def adapter_rows(rows: Sequence[SequenceRows], row_start: Sequence[int], device: torch.device) -> list[AdapterRows]:
    """The rows of each adapter that a step has."""
    adapters = sorted({row.adapter for row in rows} - {0})
    if len(adapters) == 1 and all(row.adapter for row in rows):
        return [AdapterRows(adapters[0], None)]
    owners = np.repeat([row.adapter for row in rows], np.diff(row_start)) if adapters else np.empty(0)
    return [AdapterRows(adapter, on_device(device, np.flatnonzero(owners == adapter))) for adapter in adapters]


def runs_of(sequences: Sequence[Sequence[StateRun]]) -> StateRuns:
    """The runs of some sequences, whose rows follow each other."""
    table, first = [], 0
    for runs in sequences:
        for place, run in enumerate(runs):
            table.append((first, first + run.rows, run.source, run.target, place == 0))
            first += run.rows
    return StateRuns(np.array(table, dtype=np.int64))


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
        slots += slots_of(pages, range(start, start + n)).tolist()
    fill(memory.host.slots[group], slots)
    count = len(slots)
    if count < memory.bucket.T:
        return -1  # padding rows follow, whose slots are those of page 0
    if slots[-1] - slots[0] == count - 1 and (count == 1 or slots == list(range(slots[0], slots[0] + count))):
        return slots[0]
    return -1

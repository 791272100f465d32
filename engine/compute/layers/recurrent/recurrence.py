"""Updates of a recurrent layer's matrices by the rows of a step: the part that its rules share.

A head carries a matrix [key, value]. A row decays it, writes to it by a key, and reads from it by a query. A rule has
two forms. One goes row by row: it serves every kind of run, and gives a row the same bits however rows are batched. The
other takes chunks of a chain, for prompts, and agrees with it to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.stores.states import StateRuns
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent.convolution import begin_alone, places_of, tree_of

CHUNK = 64
LEAST_CHUNK = 8
"""Shorter runs are computed row by row."""
TOGETHER_BYTES = 16 << 20
"""Bytes of matrices that sequences of one row each update at a time."""
Rows = tuple[Tensor, ...]
"""Inputs of rows, float32 and [T, heads, ...] each: queries, keys, values, and what else the rule wants of them."""
Form = Callable[[Rows, Tensor], tuple[Tensor, Tensor]]
"""Rows and the matrices before them -> their result ``[T, heads, value]``, and the matrices afterwards."""


class Rule(NamedTuple):
    """The forms of a rule."""

    step: Form
    """One row without the dimension T; or T sequences, each with a row and matrices ``[heads, key, value]``."""
    by_chunks: Form
    """Rows of a chain, and its matrices ``[heads, key, value]``."""


def read_through(rows: Rows, matrices: Tensor, runs: StateRuns, rule: Rule, numerics: Numerics) -> Tensor:
    """Result of every row's read ``[T, heads, value]``; the runs update ``matrices [slots, heads, key, value]``."""
    if len(rows[0]) > 1 and begin_alone(runs, len(rows[0])) and not numerics.batch_invariant:
        return _together(rows, matrices, runs, rule)
    out = torch.empty_like(rows[2])
    for first, stop, source, target, _ in runs.table.tolist():
        mine, parents = tuple(each[first:stop] for each in rows), tree_of(runs, first, stop)
        if parents is None and stop - first >= LEAST_CHUNK and not numerics.batch_invariant:
            out[first:stop], state = rule.by_chunks(mine, matrices[source])
        else:
            out[first:stop], state = row_by_row(mine, matrices[source], rule, parents)
        if target:
            matrices[target] = state
    return out


def _together(rows: Rows, matrices: Tensor, runs: StateRuns, rule: Rule) -> Tensor:
    """All runs are one row of a sequence of its own."""
    out, some = torch.empty_like(rows[2]), max(1, TOGETHER_BYTES // matrices[0].nbytes)
    for first in range(0, len(out), some):
        sources, targets, kept = places_of(runs.runs[first : first + some], matrices.device)
        mine = tuple(each[first : first + some] for each in rows)
        out[first : first + some], states = rule.step(mine, matrices.index_select(0, sources))
        matrices.index_copy_(0, targets, states if len(kept) == len(sources) else states.index_select(0, kept))
    return out


def row_by_row(rows: Rows, state: Tensor, rule: Rule, parents: list[int] | None = None) -> tuple[Tensor, Tensor]:
    """Results of the rows' reads, and the state after the last; ``parents[i]`` is the row that row i continues from, -1
    for ``state`` (None: each continues from the row before)."""
    out, before, after = torch.empty_like(rows[2]), state, list[Tensor]()
    for i, row in enumerate(zip(*rows, strict=True)):
        if parents is not None:
            before = after[parents[i]] if parents[i] >= 0 else state
        out[i], before = rule.step(row, before)
        if parents is not None:
            after.append(before)
    return out, before


def decays_of(g: Tensor) -> tuple[Tensor, Tensor]:
    """Sums, up to each row, of decays in log space ``g [heads, rows]``, and ``e^(sum_i - sum_j)`` from the row j to the
    row i, ``[heads, rows, rows]``, 0 where j comes after i."""
    sums = g.cumsum(1)
    lower = torch.ones(g.shape[1], g.shape[1], dtype=torch.bool, device=g.device).tril()
    return sums, (sums[:, :, None] - sums[:, None]).masked_fill(~lower, -torch.inf).exp()

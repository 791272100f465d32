"""One ragged batch: what the model sees of a step.

Every kind of work is rows of a sequence: decoding is one row, a prefill chunk is c rows, verifying a drafted chain is
its length plus one, a drafted tree is the same with `ancestors`. Tensors live in static buffers (`engine.core.buffers`)
and are valid until the next batch is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from engine.cache.packed import Placement

MAX_TREE_ROWS = 64  # `ancestors` has one bit for each new row of the sequence


@dataclass(frozen=True, slots=True)
class HostShape:
    """The batch in Python integers, so that code on the host never reads a device tensor.

    T, S and L count what is real; the tensors of the batch may be padded beyond them. `pages[g][s]` are the pages of
    sequence s in layer group g, `first_page[g][s]` is its first page if they are consecutive up to kv_len and else
    -1.
    `trees[s]` says that the rows of sequence s are a tree (empty when no sequence has one).
    """

    T: int
    S: int
    L: int
    row_start: Sequence[int]
    kv_len: Sequence[int]
    pages: Sequence[Sequence[Sequence[int]]]
    first_page: Sequence[Sequence[int]]
    max_rows: int
    max_kv: int
    trees: Sequence[bool] = ()


class RowViews(NamedTuple):
    """What the rows of a step see besides causality, for each of the `host.T` real rows; None: no row is restricted so.

    Host arrays, functions of the row's index in its sequence alone (engine/cache/policies.py), so that how rows were
    batched changes nothing.
    """

    first: np.ndarray | None = None
    """[T] int64: the row sees keys from this index on..."""
    sinks: np.ndarray | None = None
    """[T] int64: ... and besides so many of its sequence's first keys, with its query rotated to"""
    sink_positions: Tensor | None = None
    """[T] int64 on the device, padded as the batch is."""
    packed_until: np.ndarray | None = None
    """[T] int64: keys before this index are read packed, the others from the recent ones (`PackedKV.recent`)."""
    sparse: np.ndarray | None = None
    """[T] int64: so many pages each head of the row chooses; 0: it reads all."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of S sequences, flattened: sequence s has the rows row_start[s] to row_start[s + 1] - 1.

    Shapes are padded to a bucket; padding rows write to page 0, belong to no sequence of `host` and are not wanted.
    """

    tokens: Tensor  # [T] int64
    positions: Tensor  # [T] int64: what the rotary embedding sees
    placement: Placement  # where the rows' keys and values go
    row_start: Tensor  # [S + 1] int32
    kv_len: Tensor  # [S] int32: keys of the sequence, the rows of this step included
    page_table: Tensor  # [G, S, P] int32
    ancestors: (
        Tensor | None
    )  # [T] int64: bit j set if the row sees new row j of its sequence; -1 or None = causal chain
    want_logits: Tensor  # [L] int64: indices of rows
    want_hidden: frozenset[int]  # layers whose input is wanted; num_layers = what the final norm reads
    host: HostShape
    views: RowViews | None = None  # None: every row sees its whole sequence


class ForwardOutput(NamedTuple):
    """What one forward returns.

    logits [L, V], in the order of `want_logits` (empty when the layer range stops before the last layer); hidden maps
    a wanted layer index to the hidden state entering that layer [T, hidden]. A forward over a layer range that stops
    early always has hidden[stop].
    """

    logits: Tensor
    hidden: dict[int, Tensor]

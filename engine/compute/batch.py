"""The ragged batch that the model computes in one step.

Every kind of work is rows of a sequence: decoding is one row, a prefill chunk is c rows, verifying a drafted chain is
its length plus one, a drafted tree is the same with `ancestors`. Tensors live in static buffers
(`engine.compute.runner.buffers`) and are valid until the next batch is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from engine.cache.policies import PagePolicy
from engine.cache.stores.packed import Placement
from engine.cache.stores.states import StateRuns
from engine.cache.types import StateRun

MAX_TREE_ROWS = 64  # `ancestors` has one bit for each new row of the sequence
ROW_CLASSES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64)
"""Numbers of rows that a captured step has. Kvasir's kernels are cut for a class, so that their bits do not depend on
whether a step is captured; torch's products may be cut by the rows themselves, padding included."""
CONTEXT_CLASSES = (512, 4096, 16384, 65536, 262144)
"""Lengths, in tokens, likewise: keys are split for the longest text of the class."""


def row_class(rows: int) -> int:
    """The least class that is >= rows; more rows than the largest are a class of their own."""
    return next((size for size in ROW_CLASSES if size >= rows), rows)


def context_class(tokens: int) -> int:
    """The least class that is >= tokens; 0 tokens have the first."""
    return next((size for size in CONTEXT_CLASSES if size >= tokens), tokens)


@dataclass(frozen=True, slots=True)
class HostShape:
    """The batch in Python integers, so that code on the host never reads a device tensor.

    T, S and L exclude padding, which the tensors of the batch may have. `pages[g][s]` are the pages of
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
    frozen: bool = False
    """It is that of a captured graph: T, S, L, max_rows and max_kv are the most that the graph serves, all other
    fields are empty, and what a step really has is on the device."""


Ahead = Literal["none", "sliding", "all"]
"""Layers in which the tokens of a picture see those after them, too: none, those with a window, all."""


class RowViews(NamedTuple):
    """Limits on the keys that rows see in addition to causality (`until` instead), for each of the `host.T` real rows.

    None: no limit. Host arrays that depend only on the row's index in its sequence (engine/cache/policies.py) and the
    sequence's pictures, so that batching does not change them.
    """

    first: np.ndarray | None = None
    """[T] int64: the row sees keys from this index on..."""
    sinks: np.ndarray | None = None
    """[T] int64: ... and this many of the first keys of its sequence, read with its query rotated to ..."""
    sink_positions: Tensor | None = None
    """[T] int64 on the device, padded as the batch is: ... this position."""
    packed_until: np.ndarray | None = None
    """[T] int64: keys before this index are read packed, the others from the recent ones (`PackedKV.recent`)."""
    sparse: np.ndarray | None = None
    """[T] int64: the number of pages that each head of the row chooses; 0: it reads all."""
    until: np.ndarray | None = None
    """[T] int64: the row sees keys before this index. Those after its own are rows of this step. It holds ..."""
    ahead: Ahead = "none"
    """... in these layers."""
    places: np.ndarray | None = None
    """[T] int64: the rows' own places, of encoders, whose layers with a window see as far ahead as back."""


class AdapterRows(NamedTuple):
    """Rows of a step that have the adapter of this number: `rows` [n] int64 on the device; None: all rows do."""

    adapter: int
    rows: Tensor | None


class Axes(Protocol):
    """Positions of a text that has pictures, whose rows and columns the rotary embedding tells apart."""

    def axes(self, index: np.ndarray) -> np.ndarray:
        """Time, row and column ``[3, n]`` int64 of the places ``index [n]`` in the sequence; none is larger."""


class EmbeddedRows(NamedTuple):
    """Rows whose embeddings are given, as those of pictures are: from row ``first`` on, ``vectors [n, width]``.

    A width of more than one hidden size has additions to the stream after the first layers (DeepStack). ``ahead``: the
    layers in which these rows see each other, those after them too. The last of them is then the picture's last.
    """

    first: int
    vectors: Tensor
    ahead: Ahead = "none"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of S sequences, flattened: sequence s has the rows row_start[s] to row_start[s + 1] - 1.

    Shapes are padded to a bucket; padding rows write to page 0, belong to no sequence of `host` and are not wanted.
    """

    tokens: Tensor  # [T] int64
    positions: Tensor  # [T] int64: what the rotary embedding sees, and limits on keys count by
    placement: Placement  # where the rows' keys and values go
    row_start: Tensor  # [S + 1] int32
    kv_len: Tensor  # [S] int32: keys of the sequence, the rows of this step included
    page_table: Tensor  # [G, S, P] int32
    ancestors: Tensor | None  # [T] int64: bit j set if the row sees new row j of its sequence; -1 or None: a chain
    want_logits: Tensor  # [L] int64: indices of rows
    want_hidden: frozenset[int]  # layers whose input is wanted; num_layers = what the final norm reads
    host: HostShape
    views: RowViews | None = None  # None: every row sees its whole sequence
    states: StateRuns | None = None  # for a model with states
    adapters: Sequence[AdapterRows] = ()  # rows that belong to none are in no group
    axes: Tensor | None = None  # [3, T] int64: what the rotary embedding sees instead, where a sequence has pictures
    embedded: tuple[EmbeddedRows, ...] = ()  # rows of the batch whose embeddings are not those of their tokens
    types: Tensor | None = None  # [T] int64: 1 for rows in the second of an encoder's two texts; None: there are none


class ForwardOutput(NamedTuple):
    """Result of one forward.

    logits [L, V], in the order of `want_logits` (empty when the layer range stops before the last layer); hidden maps
    a wanted layer index to the hidden state entering that layer [T, hidden]. A forward over a layer range that stops
    early always has hidden[stop].
    """

    logits: Tensor
    hidden: dict[int, Tensor]


class SequenceRows(NamedTuple):
    """Rows that one sequence contributes to a step.

    `start` is the index of the first row, the number of tokens that the arena already holds. `pages` (of group 0)
    cover start + len(tokens). The logits of the last `want_logits` rows are wanted. `parents[i]` is the parent of row i
    among these rows, -1 for one that continues the committed prefix (at most 64 rows); None is a chain.
    `policy` says which keys the rows see; pages that are dead by it may be page 0.
    """

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]
    want_logits: int = 0
    parents: Sequence[int] | None = None
    more_pages: Sequence[Sequence[int]] = ()
    """The pages of layer groups 1, 2, ...; where a store keeps recent tokens apart, [0] are their pages, 0 where freed
    (`engine.cache.stores.recent.recent_span`)."""
    policy: PagePolicy | None = None
    states: Sequence[StateRun] = ()
    """Runs that cover the rows in order, for a model with states; none: the rows begin a text and leave no state."""
    adapter: int = 0
    """The number of the rows' adapter (`engine.compute.models.adapters`); 0: none."""
    axes: Axes | None = None
    """Axes of its places that the rotary embedding sees; None: each row's own, start + depth."""
    embedded: Sequence[EmbeddedRows] = ()
    """Rows of these whose embeddings are given."""
    whole: bool = False
    """They are the whole text of an encoder, and see each other."""
    second: int = 0
    """Of two texts in one, the row with which the second begins; 0: there is one."""


FIRST_ROW = SequenceRows([0], 0, [1], want_logits=1)
"""One row on page 1, which no sequence holds yet: for first passes."""


def power_of_two(n: int) -> int:
    """The least power of two that is >= n; 0 stays 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0

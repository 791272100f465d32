"""States: what layers without keys and values carry from token to token of a sequence.

A slot holds the states of all such layers after some tokens of a text. Slot 0 is the beginning of every text: it is
zero and never written. A slot that holds a state is not written again while anybody refers to it: a step reads a state
from one slot and leaves the next one in another. So a step that fails has harmed nothing, and sequences, branches and
snapshots share slots as they share full pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.paged import PagedStore, new_arena


class LayerStates(NamedTuple):
    """One layer's part of all slots."""

    tails: Tensor
    """[slots, kernel - 1, channels]: the last inputs of the convolution, the oldest first."""
    matrices: Tensor
    """[slots, value_heads, key, value] float32; empty where this kind of layer has none."""


class StateRuns(NamedTuple):
    """The runs of all sequences of a step, in the order of their rows."""

    runs: np.ndarray
    """[R, 5] int64: first row, row after the last, source, target, and 1 where a sequence begins, else 0."""
    parents: np.ndarray | None = None
    """[T] int32, where a run is a tree: the row that each row follows, -1: its run's source; None: the row before."""
    begins: np.ndarray | None = None
    """[S + 1] int64, of a frozen batch: each sequence's first run, and how many there are. These arrays are memory that
    steps :meth:`fill` for native code to read, with room for as many runs as rows."""

    @property
    def rows(self) -> int:
        """Rows that the runs cover."""
        return len(self.runs) if self.begins is not None else int(self.runs[-1, 1])

    @property
    def drafts(self) -> bool:
        """True if some rows may leave no state behind, so that their inputs are to be kept until some are accepted."""
        return self.begins is not None or not self.runs[:, 3].all()

    @property
    def table(self) -> np.ndarray:
        """``runs``, for code that plans by them on the host. Raises RuntimeError in a frozen batch."""
        if self.begins is not None:
            raise RuntimeError("where states are read and written is planned on the host")
        return self.runs

    @classmethod
    def frozen(cls, rows: int, sequences: int, tree: bool) -> StateRuns:
        """Memory for the runs of steps of so many rows and sequences."""
        parents = np.full(rows, -1, dtype=np.int32) if tree else None
        return cls(np.zeros((rows, 5), dtype=np.int64), parents, np.zeros(sequences + 1, dtype=np.int64))

    def fill(self, step: StateRuns, row_start: Sequence[int]) -> None:
        """Write the runs of a step, whose sequences' rows begin there, into the memory of a frozen batch."""
        assert self.begins is not None, "it is that of a frozen batch"
        runs = step.runs[step.runs[:, 1] > step.runs[:, 0]]  # sequences that fill up a bucket may have no rows
        self.runs[: len(runs)] = runs
        self.begins[:] = np.searchsorted(runs[:, 0], row_start)
        if self.parents is not None:
            self.parents[:] = np.arange(-1, len(self.parents) - 1) if step.parents is None else step.parents
            self.parents[runs[:, 0]] = -1  # a run's first row goes on from what its state was


class StateStore(PagedStore):
    """Slots are its pages."""

    def __init__(
        self,
        layers: int,
        slots: int,
        tail: tuple[int, int],
        matrix: tuple[int, int, int] | None,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        """``slots`` counts slot 0; ``tail`` and ``matrix`` are the shapes of a slot of :class:`LayerStates`, ``dtype``
        is that of tails."""
        where = torch.device(device)
        self.layers = [
            LayerStates(
                new_arena((slots, *tail), dtype, where),
                torch.empty(0) if matrix is None else new_arena((slots, *matrix), torch.float32, where),
            )
            for _ in range(layers)
        ]
        super().__init__(slots, [arena for layer in self.layers for arena in layer if arena.numel()])
        self._inputs: dict[int, Sequence[Tensor]] = {}

    def keep_inputs(self, layer: int, inputs: Sequence[Tensor]) -> None:
        """Remember what the rows of a step put into a layer, [T, ...] each, until the next step."""
        self._inputs[layer] = inputs

    def inputs(self, layer: int, rows: Tensor) -> list[Tensor]:
        """Inputs of these ``rows`` [n] int64 of the last step, as `keep_inputs` got them, [n, ...] each."""
        return [each.index_select(0, rows) for each in self._inputs[layer]]

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

    @property
    def drafts(self) -> bool:
        """True if some rows leave no state behind, so that their inputs are to be kept until some are accepted."""
        return not self.runs[:, 3].all()


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

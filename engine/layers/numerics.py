"""The live numeric modes, shared by the layers and the attention of one model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Numerics:
    """One mutable object per model, read at each call, so that a change takes effect from the next step on.

    ``batch_invariant``: a row gets the same bits whatever other rows are in the batch, whatever its place among them
    and however its prompt was chunked (and logits are float32). Slower; with it, speculation changes no bit of a text.

    ``cascade``: keys that several sequences of a step share are read once for all; never with ``batch_invariant``.

    ``graphs``: steps are captured in CUDA graphs where they can be; never with ``batch_invariant``.
    """

    __slots__ = ("batch_invariant", "cascade", "graphs")

    def __init__(self, batch_invariant: bool = False, cascade: bool = True, graphs: bool = True) -> None:
        self.batch_invariant, self.cascade, self.graphs = batch_invariant, cascade, graphs

    def by_row(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Apply ``function`` to ``x [T, ...]``, with ``batch_invariant`` to each of its rows by itself.

        A vectorised loop treats the end of its range in other instructions (another ``exp``), and where the end falls
        depends on the number of rows. One row at a time the shape, and so the bits, are always the same.
        """
        if x.shape[0] <= 1 or not self.batch_invariant:
            return function(x)
        return torch.cat([function(row) for row in x.split(1)])

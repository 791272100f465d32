"""The live numeric modes, shared by the layers and the attention of one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

LEAST_BITS, EXACT_BITS = 8, 32
"""Bits of quantised activations, and of those that are as exact as float32."""


class Numerics:
    """One mutable object per model, read at each call, so that a change takes effect from the next step on.

    ``batch_invariant``: a row gets the same bits whatever other rows are in the batch, whatever its place among them
    and however its prompt was chunked (and logits are float32). Slower; with it, speculation changes no bit of a text.

    ``cascade``: keys that several sequences of a step share are read once for all; never with ``batch_invariant``.

    ``activations``: what Kvasir's products on a processor make of numbers before they meet packed weights: of 8 or 16
    bits, with a scale for each 32, or of 32, which is as exact as float32. A model that ``quantises`` starts with 8 and
    takes others; one that does not keeps 32. ``automatic``: what the switch's automatic value means for the model.
    ``refines``: of 8 bits, those spans of 32 get 16 that a layer names (`NativeLinear.refined`). ``observer`` is shown
    each layer with what it multiplies, ``[T, in_features]`` in packed order, while it is measured.

    ``graphs``: steps are captured where they can be; never with ``batch_invariant``. ``changes`` grows with each change
    of what a captured product would go on to do as it did. ``early``: in CUDA graphs kernels start before the one
    before has ended, where the GPU can; ``ahead``: bytes of the next weights that they then have fetched into the
    level-2 cache.

    ``resident``: products of few rows ask for their weights before they need anything else, where such kernels serve
    them (`engine.compute.layers.linear.triton.resident`); never with ``batch_invariant``.
    """

    __slots__ = (
        "_activations",
        "_quantises",
        "_refines",
        "ahead",
        "automatic",
        "batch_invariant",
        "cascade",
        "changes",
        "early",
        "graphs",
        "observer",
        "resident",
    )

    def __init__(
        self, batch_invariant: bool = False, cascade: bool = True, graphs: bool = True, quantises: bool = False
    ) -> None:
        self.batch_invariant, self.cascade, self.graphs = batch_invariant, cascade, graphs
        self._activations = self.automatic = LEAST_BITS
        self._quantises, self._refines, self.changes = quantises, False, 0
        self.early, self.resident, self.ahead = False, False, 0
        self.observer: Callable[[Any, Tensor], None] | None = None

    @property
    def activations(self) -> int:
        return self._activations if self.quantises else EXACT_BITS

    @activations.setter
    def activations(self, bits: int) -> None:
        self.changes += bits != self._activations
        self._activations = bits

    @property
    def quantises(self) -> bool:
        return self._quantises

    @quantises.setter
    def quantises(self, value: bool) -> None:
        self.changes += value != self._quantises
        self._quantises = value

    @property
    def refines(self) -> bool:
        return self._refines

    @refines.setter
    def refines(self, value: bool) -> None:
        self.changes += value != self._refines
        self._refines = value

    @contextmanager
    def exact(self) -> Iterator[None]:
        """No activation is quantised meanwhile."""
        before, self.quantises = self.quantises, False
        try:
            yield
        finally:
            self.quantises = before

    def by_row(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Apply ``function`` to ``x [T, ...]``, with ``batch_invariant`` to each of its rows by itself.

        A vectorised loop treats the end of its range in other instructions (another ``exp``), and where the end falls
        depends on the number of rows. One row at a time the shape, and so the bits, are always the same.
        """
        if x.shape[0] <= 1 or not self.batch_invariant:
            return function(x)
        return torch.cat([function(row) for row in x.split(1)])

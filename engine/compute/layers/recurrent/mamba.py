"""Mamba2 (Dao and Gu 2024, arXiv 2405.21060): a block with a state space model in place of attention."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache.stores.states import StateRuns, StateStore
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.recurrent.state_space import state_space
from engine.compute.native.library import DTYPES, find
from engine.compute.native.state_space import MambaWeights
from engine.compute.native.tape import repeated
from engine.config.states import MambaShape

if TYPE_CHECKING:
    from engine.compute.layers.interface import Step, WeightSource
    from engine.config.model import ModelConfig


class Mamba2:
    """One projection; convolution and state space model over the sequence's state; gate, norm of each group, output."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint (``model.layers.0.mamba.``)."""
        assert isinstance(config.recurrent, MambaShape)
        self.shape = shape = config.recurrent
        self.place, self.eps = sum(shape.layers[:index]), config.rms_norm_eps
        self.sizes = (shape.inner, shape.channels, shape.heads)
        total, size = sum(self.sizes), config.hidden_size
        self.mixed: Linear = source.linear(prefix, ("in_proj",), (total,), size, shape.bias)
        self.output: Linear = source.linear(prefix, ("out_proj",), (size,), shape.inner, shape.bias)
        taps = source.array(f"{prefix}conv1d.weight", (shape.channels, 1, shape.kernel))
        added = source.array(f"{prefix}conv1d.bias", (shape.channels,)) if shape.convolution_bias else None
        self.weights = MambaWeights(
            convolution=taps[:, 0].T.contiguous(),
            convolution_bias=added,
            decay=-source.array(f"{prefix}A_log", (shape.heads,)).exp(),
            bias=source.array(f"{prefix}dt_bias", (shape.heads,)),
            skip=source.array(f"{prefix}D", (shape.heads,)),
            norm=source.array(f"{prefix}norm.weight", (shape.inner,)).view(shape.groups, -1),
        )
        self.numerics = source.numerics
        self._library, self._dtype = find().library if self.weights.norm.device.type == "cpu" else None, source.dtype

    @property
    def plans(self) -> bool:
        """True if the host plans where a step reads and writes states."""
        library, shape = self._library, self.shape
        if library is None or self._dtype not in DTYPES:
            return True
        return not (library.has_state_space(shape) and library.has_convolution(shape.channels, shape.kernel))

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        states, runs = step.kv.states, step.batch.states
        assert states is not None
        assert runs is not None
        gate, *inputs = self.mixed(x).split(self.sizes, 1)
        if runs.drafts:
            repeated(partial(states.keep_inputs, self.place, inputs))
        read = self._move(inputs, states, runs)
        normed = self._normed(read, gate[: len(read)]).to(x.dtype)
        if len(read) < len(x):  # padding rows
            normed = torch.cat((normed, normed.new_zeros(len(x) - len(read), normed.shape[1])))
        return self.output(normed)

    def _normed(self, read: Tensor, gate: Tensor) -> Tensor:
        """``read [rows, heads, width]`` and ``gate [rows, inner]`` -> ``[rows, inner]``, gated and then normalised."""
        if self._library is not None:
            found = self._library.gated_norm(read.flatten(1), gate, self.weights.norm, self.eps)
            if found is not None:
                return found
        gated = read.flatten(1) * self.numerics.by_row(F.silu, gate.float())
        groups, size = self.weights.norm.shape
        normed = self.numerics.by_row(
            lambda x: F.rms_norm(x, (size,), eps=self.eps), gated.unflatten(1, (groups, size))
        )
        return (normed * self.weights.norm).flatten(1)

    def replay(self, states: StateStore, rows: Tensor, runs: StateRuns) -> None:
        """Move states on by ``rows [n]`` int64 of the last step, which left none behind."""
        self._move(states.inputs(self.place, rows), states, runs)

    def _move(self, inputs: list[Tensor], states: StateStore, runs: StateRuns) -> Tensor:
        mixed, steps = inputs
        own = states.layers[self.place]
        return state_space(mixed, steps, self.weights, self.shape, own, runs, self.numerics, self._library)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "mixed", self.mixed
        yield "output", self.output

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return sum(each.nbytes for each in self.weights if each is not None)

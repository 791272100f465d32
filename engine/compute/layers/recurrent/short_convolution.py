"""The short convolution with two gates that takes the place of attention in most layers of LFM2 (Liquid AI 2025)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.cache.stores.states import StateRuns, StateStore
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.recurrent.convolution import convolve
from engine.compute.native.library import DTYPES, find
from engine.compute.native.tape import repeated
from engine.config.states import ConvolutionShape

if TYPE_CHECKING:
    from engine.compute.layers.interface import Step, WeightSource
    from engine.config.model import ModelConfig


class ShortConvolution:
    """``out(c * convolution(b * x))``, b, c and x being projected from the stream."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint (``model.layers.0.conv.``)."""
        shape = config.recurrent
        assert isinstance(shape, ConvolutionShape)
        self.place, size = sum(shape.layers[:index]), config.hidden_size
        self.mixed: Linear = source.linear(prefix, ("in_proj",), (3 * size,), size, False)
        self.output: Linear = source.linear(prefix, ("out_proj",), (size,), size, False)
        self.taps = source.array(f"{prefix}conv.weight", (size, 1, shape.kernel))[:, 0].T.contiguous()
        self._library = find().library if source.device.type == "cpu" and source.dtype in DTYPES else None

    @property
    def plans(self) -> bool:
        """True if the host plans where a step reads and writes states."""
        kernel, channels = self.taps.shape
        return self._library is None or not self._library.has_convolution(channels, kernel)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        states, runs = step.kv.states, step.batch.states
        assert states is not None
        assert runs is not None
        b, c, x = self.mixed(x).chunk(3, 1)
        inputs = b * x
        if runs.drafts:
            repeated(partial(states.keep_inputs, self.place, (inputs,)))
        count = runs.rows
        seen = self._move(inputs[:count], states, runs).to(x.dtype)
        if count < len(x):  # padding rows
            seen = torch.cat((seen, seen.new_zeros(len(x) - count, seen.shape[1])))
        return self.output(c * seen)

    def replay(self, states: StateStore, rows: Tensor, runs: StateRuns) -> None:
        """Move states on by ``rows [n]`` int64 of the last step, which left none behind."""
        (inputs,) = states.inputs(self.place, rows)
        self._move(inputs, states, runs)

    def _move(self, inputs: Tensor, states: StateStore, runs: StateRuns) -> Tensor:
        return convolve(inputs, self.taps, states.layers[self.place].tails, runs, self._library)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "mixed", self.mixed
        yield "output", self.output

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return self.taps.nbytes

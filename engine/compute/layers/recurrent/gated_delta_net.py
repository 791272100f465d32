"""The gated delta net: a block with a state in place of keys and values (Yang et al. 2024; Qwen3-Next's form)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from engine.cache.stores.states import StateRuns, StateStore
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.recurrent.delta_rule import delta_rule
from engine.compute.layers.residual import ResidualStream
from engine.compute.native.delta import DeltaWeights
from engine.compute.native.library import find
from engine.compute.native.tape import repeated
from engine.config.states import RecurrentShape

if TYPE_CHECKING:
    from engine.compute.layers.interface import Norm, Step, WeightSource
    from engine.config.model import ModelConfig


class GatedDeltaNet:
    """Projections; convolution and delta rule over the sequence's state; norm, gate and output."""

    output_name, norm_name = "out_proj", "norm"

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint (``model.layers.0.linear_attn.``)."""
        assert isinstance(config.recurrent, RecurrentShape)
        self.shape = shape = config.recurrent
        self.place, size = sum(shape.layers[:index]), config.hidden_size
        self._read_projections(source, prefix, size)
        values = shape.value_heads * shape.value
        self.output: Linear = source.linear(prefix, (self.output_name,), (size,), values, False)
        self.weights = DeltaWeights(
            convolution=self._taps(source, prefix).T.contiguous(),
            decay=-source.array(f"{prefix}A_log", (shape.value_heads,)).exp(),
            bias=source.array(f"{prefix}dt_bias", (shape.decays,)),
            norm=source.array(f"{prefix}{self.norm_name}.weight", (shape.value,)),
            eps=config.rms_norm_eps,
        )
        self.numerics = source.numerics
        self._library, self._dtype = find().library if self.weights.norm.device.type == "cpu" else None, source.dtype

    @property
    def plans(self) -> bool:
        """True if the host plans where a step reads and writes states."""
        return self._library is None or not self._library.has_delta_rule(self.shape, self._dtype)

    def _read_projections(self, source: WeightSource, prefix: str, size: int) -> None:
        shape = self.shape
        values, heads = shape.value_heads * shape.value, shape.value_heads
        names = ("in_proj_qkv", "in_proj_z")
        self.mixed: Linear = source.linear(prefix, names, (shape.channels, values), size, False)
        self.gates: Linear = source.linear(prefix, ("in_proj_b", "in_proj_a"), (heads, heads), size, False)

    def _taps(self, source: WeightSource, prefix: str) -> Tensor:
        """``[channels, kernel]``"""
        return source.array(f"{prefix}conv1d.weight", (self.shape.channels, 1, self.shape.kernel))[:, 0]

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        return self.output(self._read(lambda linear: linear(x), step))

    def add_to(self, stream: ResidualStream, norm: Norm, step: Step, scale: float) -> None:
        """Add ``scale`` times what the block makes of the norm of the stream."""
        stream.add_product(self.output, self._read(stream.products(norm), step), scale)

    def _read(self, times: Callable[[Linear], Tensor], step: Step) -> Tensor:
        """What the output layer reads; ``times`` as for :meth:`project`."""
        states, runs = step.kv.states, step.batch.states
        assert states is not None
        assert runs is not None
        inputs = self.project(times)
        if runs.drafts:
            repeated(partial(states.keep_inputs, self.place, inputs))
        return self._rule(*inputs, states, runs)

    def project(self, times: Callable[[Linear], Tensor]) -> tuple[Tensor, Tensor]:
        """Inputs of :func:`delta_rule`, mixed and gates; ``times(linear)`` is that layer's of what the block reads."""
        return times(self.mixed), times(self.gates)

    def replay(self, states: StateStore, rows: Tensor, runs: StateRuns) -> None:
        """Move states on by ``rows [n]`` int64 of the last step, which left none behind."""
        mixed, gates = states.inputs(self.place, rows)
        self._rule(mixed, gates, states, runs)

    def _rule(self, mixed: Tensor, gates: Tensor, states: StateStore, runs: StateRuns) -> Tensor:
        own = states.layers[self.place]
        return delta_rule(mixed, gates, self.weights, self.shape, own, runs, self.numerics, self._library)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "mixed", self.mixed
        yield "gates", self.gates
        yield "output", self.output

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return sum(each.nbytes for each in self.weights if isinstance(each, Tensor))

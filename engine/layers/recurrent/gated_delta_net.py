"""The gated delta net: a block with a state in place of keys and values (Yang et al. 2024; Qwen3-Next's form)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from engine.cache.stores.states import StateRuns, StateStore
from engine.layers.linear.base import Linear
from engine.layers.recurrent.delta_rule import delta_rule
from engine.model_config.states import RecurrentShape
from engine.native.delta import DeltaWeights
from engine.native.library import find

if TYPE_CHECKING:
    from engine.layers.interface import Step, WeightSource
    from engine.model_config.model import ModelConfig


class GatedDeltaNet:
    """Projections; convolution and delta rule over the sequence's state; norm, gate and output."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint (``model.layers.0.linear_attn.``)."""
        assert isinstance(config.recurrent, RecurrentShape)
        self.shape = shape = config.recurrent
        self.place = sum(shape.layers[:index])
        values, heads = shape.value_heads * shape.value, shape.value_heads
        names, sizes = ("in_proj_qkv", "in_proj_z"), (shape.channels, values)
        self.mixed: Linear = source.linear(prefix, names, sizes, config.hidden_size, False)
        self.gates: Linear = source.linear(
            prefix, ("in_proj_b", "in_proj_a"), (heads, heads), config.hidden_size, False
        )
        self.output: Linear = source.linear(prefix, ("out_proj",), (config.hidden_size,), values, False)
        self.weights = DeltaWeights(
            convolution=source.array(f"{prefix}conv1d.weight", (shape.channels, 1, shape.kernel))[:, 0].T.contiguous(),
            decay=-source.array(f"{prefix}A_log", (heads,)).exp(),
            bias=source.array(f"{prefix}dt_bias", (heads,)),
            norm=source.array(f"{prefix}norm.weight", (shape.value,)),
            eps=config.rms_norm_eps,
        )
        self.numerics = source.numerics
        self._library = find().library if self.weights.norm.device.type == "cpu" else None

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        states, runs = step.kv.states, step.batch.states
        assert states is not None
        assert runs is not None
        inputs = self.mixed(x), self.gates(x)
        if runs.drafts:
            states.keep_inputs(self.place, inputs)
        return self.output(self._rule(*inputs, states, runs))

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

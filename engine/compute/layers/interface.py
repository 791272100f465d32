"""Interfaces that layers are made from, and the state that they share in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.cache.stores.store import KVStore
from engine.compute.attention.interface import ModelAttention
from engine.compute.attention.rotation import RotaryStep
from engine.compute.batch import Batch
from engine.compute.layers.embedding import TokenTable
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.numerics import Numerics


class WeightSource(Protocol):
    """Source of a family's weights, by their names in the checkpoint (engine/formats/source.py)."""

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        """One layer of the modules ``prefix + name``, fused along their output features, which are ``sizes``."""

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        """One layer for each of ``count`` experts, of the modules ``{prefix}{expert}.{name}`` as in :meth:`linear`."""

    def vector(self, name: str, size: int) -> Tensor:
        """A norm's weight in the model's dtype."""

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor in float32, whatever the file has it in. Dimensions of 1 do not count."""

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        """The weight ``[rows, columns]`` of the linear module ``prefix``, dense in the model's dtype however packed."""

    def embedding(self, name: str, rows: int, columns: int) -> Tensor | TokenTable:
        """The token table ``[rows, columns]`` in the model's dtype, or packed."""

    def head(self, table: Tensor | TokenTable | None, rows: int, columns: int) -> Linear:
        """The output layer ``[rows, columns]``: over the token table when it is given, else ``lm_head``."""

    @property
    def numerics(self) -> Numerics: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...


class Step(NamedTuple):
    """State that all layers of one forward share."""

    batch: Batch
    kv: KVStore
    attention: ModelAttention
    ropes: tuple[RotaryStep, ...]
    """A rotation for each of :attr:`CausalLM.rotaries`."""
    sink_ropes: tuple[RotaryStep, ...] | None = None
    """Likewise for the queries of sinks (`RowViews.sink_positions`); None: the step has none."""
    query_scale: Tensor | None = None
    """``[T, 1, 1]`` that multiplies queries; None: nothing does."""
    layer_inputs: Tensor | None = None
    """``[layers, T, width]``: what each layer is given besides the stream, where the family does so (Gemma 4)."""


class Rotary(Protocol):
    """Gives a step its rotation."""

    @property
    def generation(self) -> int:
        """Grows when its tables move."""

    def step(self, batch: Batch, positions: Tensor | None = None) -> RotaryStep:
        """The rotation of the rows of a batch, at its positions or at others ``[T]`` below the longest sequence's."""

    def reserve(self, positions: int) -> None:
        """Make tables for this many positions, which only longer texts then move."""

    def storage_size(self) -> int: ...


def new_step(
    batch: Batch,
    kv: KVStore,
    attention: ModelAttention,
    rotaries: Sequence[Rotary],
    query_scale: Tensor | None = None,
    layer_inputs: Tensor | None = None,
) -> Step:
    """Return the state that the layers share in a step over ``batch``."""
    at = None if batch.views is None else batch.views.sink_positions
    sinks = None if at is None else tuple(rotary.step(batch, at) for rotary in rotaries)
    ropes = tuple(rotary.step(batch) for rotary in rotaries)
    return Step(batch, kv, attention, ropes, sinks, query_scale, layer_inputs)


class Norm(Protocol):
    def forward(self, x: Tensor) -> Tensor:
        """``x [T, hidden_size]`` -> the same shape and dtype."""

    def forward_added(self, x: Tensor, added: Tensor, scale: float = 1.0) -> Tensor:
        """Add ``scale * added`` to ``x [T, hidden_size]`` in place; the norm of the sum, a new tensor."""

    def forward_within(self, x: Tensor, linear: Linear, gating: str = "") -> Tensor | None:
        """``linear`` of the norm of ``x [T, hidden_size]``, and the gating after it ("" for none), by one kernel; None
        where there is none, and nothing was done."""

    def storage_size(self) -> int: ...

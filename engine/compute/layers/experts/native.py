"""A block of experts on a processor: all products of a step by one call of native code.

Which experts are asked is read there (native/experts.c), so that the call can be recorded. It gives what the experts
give one after the other, to the bit.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.layers.activation import FUNCTIONS, Activation, ClampedSwiGLU, Gated
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.native import FEW_ROWS, NativeLinear
from engine.compute.layers.numerics import Numerics
from engine.compute.native import results
from engine.compute.native.experts import PLAIN, ExpertsArguments, LayersArguments
from engine.compute.native.library import GATINGS, ROW_UNIT, loaded

Table = ctypes.Array[ctypes.c_void_p]


class NativeExperts:
    """``sum of share_e * down_e(gated(gate_up_e(x)))``, as `engine.compute.layers.moe.SparseMLP` says it."""

    def __init__(
        self,
        gate_up: Sequence[Linear],
        down: Sequence[Linear],
        gated: Activation | Gated | ClampedSwiGLU,
        numerics: Numerics,
    ) -> None:
        self.gate_up, self.down, self.gated, self.numerics = gate_up, down, gated, numerics
        self._alike: dict[tuple[int, int], LayersArguments] = {}
        """By place and digits, where all layers have the same."""

    @functools.cached_property
    def declined(self) -> str | None:
        """Reason that no step of this block is computed so; None where they are."""
        if not all(isinstance(layer, NativeLinear) for layer in (*self.gate_up, *self.down)):
            return "its weights are not served by native products"
        gate_up, down = self.gate_up[0], self.down[0]
        if (gate_up.in_features | down.in_features) % ROW_UNIT or gate_up.in_features != down.out_features:
            return f"it has no rows of {gate_up.in_features} and {down.in_features} numbers"
        for stack in (self.gate_up, self.down):
            if len({None if each is None else each.dtype for each in map(_bias_of, stack)}) > 1:
                return "not all experts have biases"
        return None if self._gating is not None else "it has no such gating"

    def serves(self, x: Tensor) -> bool:
        """Return True if this computes a step of rows ``x [T, K]``."""
        if self.declined is not None or not len(x) or self.numerics.observer is not None:
            return False
        biases = (_bias_of(stack[0]) for stack in (self.gate_up, self.down))
        return all(bias is None or bias.dtype == x.dtype for bias in biases)

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor, shared: Tensor | None) -> Tensor:
        """``x [T, hidden_size]``; ``chosen [T, k]`` int64 and ``shares [T, k]`` float32 of its rows, contiguous;
        ``shared`` is like x and added to the sum."""
        assert self._gating is not None, "see declined"
        number, limit, alpha = self._gating
        x, shared = x.contiguous(), None if shared is None else shared.to(x.dtype).contiguous()
        out, many = results.empty(x.shape, x.dtype), len(x) > FEW_ROWS
        sums = None if not many else out if x.dtype == torch.float32 else results.empty(x.shape, torch.float32)
        layers = self._layers(0, many), self._layers(1, many)
        problem = ExpertsArguments(
            *layers,
            *(each.data_ptr() for each in (chosen, shares, x)),
            None if shared is None else shared.data_ptr(),
            out.data_ptr(),
            None if sums is None else sums.data_ptr(),
            *chosen.shape,
            len(self.down),
            FEW_ROWS,
            limit,
            alpha,
            number,
            x.dtype == torch.bfloat16,
        )
        problem.kept = layers  # as long as the structure has their addresses
        loaded().experts(problem)
        return out

    def _layers(self, place: int, many: bool) -> LayersArguments:
        """The experts' first layers, or their second (``place`` 1). ``many``: so many rows that an expert may be asked
        by more than a few."""
        stack, numerics = self._stacks[place], self.numerics
        if numerics.refines:
            refined: Table | None = None
            if many and not numerics.batch_invariant and numerics.activations == 8:
                refined = _table([None if each.refined is None else each.refined.data_ptr() for each in stack])
            return self._arguments(place, [layer.few_digits for layer in stack], refined)
        digits = stack[0].few_digits
        if (place, digits) not in self._alike:
            self._alike[place, digits] = self._arguments(place, [digits] * len(stack), None)
        return self._alike[place, digits]

    def _arguments(self, place: int, digits: Sequence[int], refined: Table | None) -> LayersArguments:
        """``digits`` of activations for each layer: those of its own product of a few rows."""
        weights, biases, orders = self._fixed[place]
        tables = weights, biases, (ctypes.c_int32 * len(digits))(*digits), refined, orders
        layers = LayersArguments(*(None if each is None else ctypes.addressof(each) for each in tables))
        layers.kept = tables  # as long as the structure has their addresses
        return layers

    @functools.cached_property
    def _gating(self) -> tuple[int, float, float] | None:
        """Number of the gating in experts.c, and the limit and alpha of a clamped one; None where there is none."""
        gated = self.gated
        if isinstance(gated, ClampedSwiGLU):
            return GATINGS.index("clamped"), gated.limit, gated.alpha
        if isinstance(gated, Gated):
            return (GATINGS.index(gated.kind), 0.0, 0.0) if gated.kind in GATINGS else None
        return (len(GATINGS), 0.0, 0.0) if gated.function is FUNCTIONS[PLAIN] else None

    @functools.cached_property
    def _stacks(self) -> tuple[list[NativeLinear], list[NativeLinear]]:
        gate_up, down = (
            [each for each in stack if isinstance(each, NativeLinear)] for stack in (self.gate_up, self.down)
        )
        return gate_up, down

    @functools.cached_property
    def _fixed(self) -> list[tuple[Table, Table | None, Table | None]]:
        """Addresses of each stack's weights, biases and orders, which lie there as long as the layers do."""
        return [
            (
                _table([ctypes.addressof(layer.weights) for layer in stack]),
                _table_of([layer.bias for layer in stack]),
                _table_of([layer.order for layer in stack]),
            )
            for stack in self._stacks
        ]


def _table(addresses: Sequence[int | None]) -> Table:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _table_of(tensors: Sequence[Tensor | None]) -> Table | None:
    """Addresses of tensors, contiguous; None where there are none."""
    found = [each for each in tensors if each is not None]
    assert all(each.is_contiguous() for each in found)
    return _table([None if each is None else each.data_ptr() for each in tensors]) if found else None


def _bias_of(layer: Linear) -> Tensor | None:
    assert isinstance(layer, NativeLinear), "see declined"
    return layer.bias

"""Kinds of packed linear layers: by torch's operators as by definition, planned as they are built, row by row.

A kind names its modules: cases of `packed_parts`. Kvasir's own kernels have tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from engine.compute.layers.linear import choose, ggml
from engine.compute.layers.linear.base import Linear, Target
from engine.compute.layers.linear.blockwise import BlockwiseLinear
from engine.compute.layers.numerics import Numerics
from tests.contracts.registration import Contract
from tests.engine.compute.layers.packed_parts import Packed, definition, layout_of

CPU, CUDA, META = torch.device("cpu"), torch.device("cuda"), torch.device("meta")
ROUNDING = {torch.float32: 0.0, torch.bfloat16: 2**-8, torch.float16: 2**-11}
each_dtype = pytest.mark.parametrize("dtype", ROUNDING, ids=str)


def alike(planned: Linear, built: Linear) -> bool:
    traits = [(type(layer), layer.path, layer.kind, layer.declined, layer.storage_size()) for layer in (planned, built)]
    return traits[0] == traits[1]


def close(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor, rounding: float = 0.0) -> bool:
    """Within ``rounding`` of every product and of the result, and the rounding of float32 sums.

    Of codes that count for more than their weights, with zero-points or minima, the sizes are summed apart.
    """
    exact = x.double() @ weight.double().t() + bias.double()
    apart = weight.double().abs() + weight.abs().max()
    allowed = x.double().abs() @ apart.t() * (rounding + 2**-20) + exact.abs() * rounding
    return bool(((found.double() - exact).abs() <= allowed).all())


class LinearKindContract(Contract):
    cases: ClassVar[Mapping[str, Mapping[str, Callable[[], Packed]]]]
    """``make``: by name."""
    on_gpu: ClassVar[str] = "Triton kernel"
    """The path of what Triton kernels serve."""
    unserved: ClassVar[tuple[str, ...]] = ()
    """Names of cases that they do not."""

    @each_dtype
    def test_weights_and_products_are_those_of_the_definition(
        self, make: Callable[[], Packed], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many rows are dequantised at a time, wherever blocks end; for few rows and for many."""
        packed = make()
        weight = definition(packed)
        outputs, inputs = weight.shape
        bias = torch.randn(outputs).to(dtype)
        layer = choose.built(*packed, bias, Target(dtype, CPU, Numerics(), native=False))
        assert (layer.in_features, layer.out_features) == (inputs, outputs)
        exact = layer.path == "dequantise and multiply"
        for step, rows in ((1, 3), (7, 70), (64, 1)):
            monkeypatch.setattr(BlockwiseLinear, "block_weights", step * inputs)
            monkeypatch.setattr(ggml, "BLOCK_WEIGHTS", step * inputs)
            if exact:
                assert torch.equal(layer.dequantised(torch.float32), weight)
                assert torch.equal(layer.dequantised(dtype), weight.to(dtype))
            x = torch.randn(rows, inputs).to(dtype)
            found, wide = layer(x), layer.forward_float32(x)
            assert (found.dtype, wide.dtype) == (dtype, torch.float32)
            assert close(found, x, weight, bias, 2 * ROUNDING[dtype])
            assert close(wide, x, weight, bias, 0.0 if exact else ROUNDING[dtype])

    @pytest.mark.parametrize("native", [False, True])
    @each_dtype
    def test_what_is_planned_for_a_cpu_is_built(
        self, make: Callable[[], Packed], dtype: torch.dtype, native: bool
    ) -> None:
        shape, parts = make()
        bias, target = torch.randn(shape.out_features).to(dtype), Target(dtype, CPU, Numerics(), native)
        built = choose.built(shape, parts, bias, target)
        assert alike(choose.planned(shape, bias.to(META), target), built)
        if layout := layout_of(shape):
            assert layout.surveyed(parts) == shape
            assert alike(layout.planned(shape.out_features, bias.to(META), target), built)

    @pytest.mark.usefixtures("a_gpu")
    def test_what_is_planned_for_a_gpu_is_built(
        self, make: Callable[[], Packed], request: pytest.FixtureRequest
    ) -> None:
        shape, parts = make()
        bias, target = torch.randn(shape.out_features).bfloat16(), Target(torch.bfloat16, CUDA, Numerics())
        built = choose.unfilled(shape, target, CPU)
        built.fill(parts)
        built.bias = bias
        planned = choose.planned(shape, bias.to(META), target)
        assert alike(planned, built)
        name = request.node.callspec.id
        assert (planned.path == self.on_gpu) == (name not in self.unserved), planned.declined

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_rows_keep_their_bits(self, make: Callable[[], Packed], dtype: torch.dtype) -> None:
        """A row alone, and in batches at several places among neighbours of every size."""
        torch.set_num_threads(1)
        packed = make()
        layer = choose.built(*packed, None, Target(dtype, CPU, Numerics(True), native=False))
        row = torch.randn(1, layer.in_features).to(dtype)
        others = (torch.randn(33, layer.in_features) * 10 ** torch.randn(33, 1)).to(dtype)
        for forward in (layer.forward, layer.forward_float32):
            alone = forward(row)[0]
            for count in (2, 3, 8, 9, 33):
                for place in {0, count // 2, count - 1}:
                    batch = others[:count].clone()
                    batch[place] = row[0]
                    assert torch.equal(forward(batch)[place], alone), (count, place)

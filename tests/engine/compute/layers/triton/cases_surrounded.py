"""Products with what surrounds them in a layer, in the interpreter: the bits of one kernel for each part.

Tensor cores sum up every output feature alike; what numpy multiplies with does not, so that dots are exact here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.compute.layers.triton.interpreted import interpreter  # isort: skip (before all that imports Triton)
from engine.compute.layers.linear.base import LinearShape, Surroundings, Target
from engine.compute.layers.linear.triton import int4, surrounded
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.numerics import Numerics
from tests.gpu.kernel_kinds import KINDS
from tests.gpu.machine_code import in_planes

CPU = torch.device("cpu")
IN_PLANES = [name for name in KINDS if in_planes(name)]
DTYPES = (torch.float32, torch.float16)
OUTPUTS, INPUTS, ODD = 26, 768, 21
"""Gates and ups end within a program; rows are cut in blocks that are not all there."""
pytestmark = [
    pytest.mark.content("engine/compute/layers/linear/triton"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp"),
]


@pytest.fixture(autouse=True)
def _exact_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summed in float64 and rounded once, wherever in a tile."""

    def dot(a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        exact = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64)).astype(d.data.dtype)
        return interpreter.TensorHandle(exact + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter.interpreter_builder, "create_dot", dot)


def made(name: str, dtype: torch.dtype, outputs: int = OUTPUTS) -> PlaneLinear:
    layer = KINDS[name](outputs, INPUTS, dtype, CPU, Numerics()).layer
    layer.bias = torch.linspace(-1, 1, outputs).to(dtype)
    assert isinstance(layer, PlaneLinear)
    return layer


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def same(layer: PlaneLinear, x: Tensor, around: Surroundings) -> None:
    streams = [None if around.stream is None else around.stream.clone() for _ in range(2)]
    found = surrounded.multiply(layer, x, around._replace(stream=streams[0]))
    expected = surrounded.apart(layer, x, around._replace(stream=streams[1]))
    assert found.dtype == x.dtype
    assert torch.equal(found, expected)
    assert expected.any()
    assert streams[0] is None or found is streams[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [pytest.param("int4 g128", marks=pytest.mark.always), *IN_PLANES[1:]])
def test_each_part_and_all_of_them(name: str, dtype: torch.dtype) -> None:
    layer, norm = made(name, dtype), (1 + 0.2 * normal(INPUTS, seed=3)).to(dtype)
    one, stream = normal(1, INPUTS).to(dtype), normal(1, OUTPUTS, seed=2).to(dtype)
    same(layer, one, Surroundings(gating="silu"))
    same(layer, one, Surroundings(norm, 1e-5))
    same(layer, one, Surroundings(stream=stream))
    same(layer, one, Surroundings(norm, 1e-5, "silu"))


@pytest.mark.parametrize("gating", surrounded.GATINGS)
@pytest.mark.parametrize("rows", [1, 5, 8])
def test_gates_of_some_rows(rows: int, gating: str) -> None:
    same(made("int4 g128 zeros", torch.float16), normal(rows, INPUTS).half(), Surroundings(gating=gating))


def test_norms_in_float32_sizes_that_are_no_power_of_two_and_scaled_additions() -> None:
    layer = made("int4 g64", torch.float16, ODD)
    x, stream = normal(1, INPUTS).half(), normal(1, ODD, seed=2).half()
    same(layer, x, Surroundings(1 + 0.2 * normal(INPUTS, seed=3), 1e-6))
    same(layer, x, Surroundings(stream=stream, by=0.22))


def test_a_step_of_one_row_and_its_reasons() -> None:
    layer = made("int4 g128", torch.float32)
    one, eight = normal(1, INPUTS), normal(8, INPUTS)
    norm = Surroundings(torch.ones(INPUTS), 1e-5)
    for around in (norm, Surroundings(gating="silu"), Surroundings(stream=normal(1, OUTPUTS))):
        assert surrounded.declines(layer, one, around) is None
    assert surrounded.declines(layer, eight, Surroundings(gating="silu")) is None
    assert "more than one row" in str(surrounded.declines(layer, eight, norm))
    assert "no such product of 9 rows" in str(
        surrounded.declines(layer, normal(9, INPUTS), Surroundings(gating="silu"))
    )
    assert "no gating of the kind relu" in str(surrounded.declines(layer, one, Surroundings(gating="relu")))
    apart = normal(1, 2 * OUTPUTS)[:, ::2]
    assert "no whole tensor" in str(surrounded.declines(layer, one, Surroundings(stream=apart)))
    layer.order = torch.arange(INPUTS)
    assert "another order" in str(surrounded.declines(layer, one, norm))
    layer.numerics.batch_invariant = True
    assert "last bits" in str(surrounded.declines(layer, one, Surroundings(gating="silu")))


def test_a_wrong_kernel_and_an_empty_layer_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrounded, "_tried", {})
    gating = Surroundings(gating="silu")
    shape = LinearShape("int4", INPUTS, OUTPUTS, group=128, scales=torch.float16, symmetric=True)
    empty = int4.TritonInt4Linear(shape, Target(torch.float32, CPU, Numerics()), CPU)
    assert "are zero" in str(surrounded.declines(empty, normal(1, INPUTS), gating))
    monkeypatch.setattr(surrounded, "_tried", {})
    multiply = surrounded.multiply
    monkeypatch.setattr(surrounded, "multiply", lambda *of: 1.02 * multiply(*of))
    layer = made("int4 g128", torch.float32)
    assert "does not agree with its parts" in str(surrounded.declines(layer, normal(1, INPUTS), gating))

"""Addition with norm, and gating, in the interpreter: in float32, and in float16 with torch's roundings.

(In bfloat16 the interpreter of Triton 3.6 silently computes something else.)
"""

from __future__ import annotations

from typing import cast, get_args

import pytest
import torch
from torch import Tensor

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.compute.layers.activation import ClampedSwiGLU, Gated
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.triton import fused
from engine.compute.layers.triton.fused import Gating
from engine.config.feed_forward import ActivationKind

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # numpy's, where the function has ended
DTYPES = (torch.float32, torch.float16)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor) -> bool:
    """Float32 within a few of its last bits; float16 with its roundings, but where another last bit tips one."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype == torch.float32:
        return torch.allclose(found, expected, rtol=2e-6, atol=1e-5)
    steps = (found.view(torch.int16).int() - expected.view(torch.int16).int()).abs()
    steps = steps[expected.abs() > 0.01]  # what is left of 1 where almost 1 was taken from it has few bits
    return int(steps.max()) <= 2 and float((steps > 0).float().mean()) < 0.005


@pytest.mark.parametrize("size", [64, 1000, 2560])
@pytest.mark.parametrize("scale", [1.0, 0.22])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight", DTYPES)
def test_the_sum_and_its_norm(size: int, scale: float, dtype: torch.dtype, weight: torch.dtype) -> None:
    """A weight in float32 is that of a family whose norms add 1 to it."""
    if weight == torch.float16 and dtype == torch.float32:
        pytest.skip("no model has it")
    x, added = normal(3, size).to(dtype), normal(3, size, seed=2).to(dtype)
    factor = (1 + 0.2 * normal(size, seed=3)).to(weight)
    expected = x.clone()
    norm = RMSNorm(factor, 1e-5, Numerics()).forward_added(expected, added, scale)
    normed = fused.add_norm(x, added, scale, factor, 1e-5)
    assert torch.equal(x, expected)
    if dtype == torch.float32 or weight == torch.float32:
        assert close(normed, norm)
    else:  # torch on a CPU rounds before it multiplies by the weight; on a GPU it does not
        whole = torch.nn.functional.rms_norm(expected.float(), (size,), factor.float(), 1e-5)
        assert close(normed, whole.to(dtype))


@pytest.mark.parametrize("size", [16, 1000, 2064])
@pytest.mark.parametrize("kind", get_args(Gating))
@pytest.mark.parametrize("dtype", DTYPES)
def test_gates(size: int, kind: Gating, dtype: torch.dtype) -> None:
    gate_up = (4 * normal(3, 2 * size)).to(dtype)
    gate_up[0, 0], gate_up[1, 0], gate_up[2, 0] = 0.0, 60.0, -60.0
    if kind == "clamped":
        expected = ClampedSwiGLU(7.0, 1.702, Numerics())(gate_up)
    else:
        expected = Gated(cast(ActivationKind, kind), Numerics())(gate_up)
    assert close(fused.gate(gate_up, kind, 7.0, 1.702), expected)


def test_no_rows() -> None:
    x = torch.empty(0, 32)
    assert fused.add_norm(x, x, 1.0, torch.ones(32), 1e-5).shape == (0, 32)
    assert fused.gate(x, "silu").shape == (0, 16)


def test_trials() -> None:
    for kind in get_args(Gating):
        assert fused.compare_gate(kind, torch.float32, CPU) is None
    assert fused.compare_norm(72, torch.float32, torch.float32, CPU) is None


def test_a_wrong_kernel_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, add_norm = fused.gate, fused.add_norm
    monkeypatch.setattr(fused, "gate", lambda x, *options: gate(x, *options) * 1.02)
    assert fused.compare_gate("silu", torch.float32, CPU) is not None
    monkeypatch.setattr(fused, "add_norm", lambda x, *options: add_norm(x.clone(), *options))
    assert fused.compare_norm(64, torch.float32, torch.float32, CPU) is not None

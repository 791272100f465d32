"""What lies between the products of a layer, on a GPU in 16 bits. Skipped where there is no GPU."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from engine.compute.attention.triton import merging, pack_trial, quest_trial
from engine.compute.layers.activation import ClampedSwiGLU, Gated
from engine.compute.layers.linear.base import Surroundings
from engine.compute.layers.linear.triton import surrounded
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent import delta_rule
from engine.compute.layers.triton import delta, fused
from engine.compute.layers.triton.fused import Gating
from engine.config.states import RecurrentShape
from tests.gpu.gpu_support import DEVICE, NO_GPU
from tests.gpu.kernel_kinds import KINDS

if DEVICE.type != "cuda" or not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
pytest.importorskip("triton")

HALVES = [torch.bfloat16, torch.float16]
INVARIANT = Numerics(batch_invariant=True)
"""With it torch computes."""
CACHES = {"dense": (16, 16), "int8": (8, 8), "fp8": (8, 8), "int4": (4, 4), "kivi": (2, 4)}


@pytest.mark.parametrize("dtype", HALVES)
def test_the_kernels_prove_themselves(dtype: torch.dtype) -> None:
    for kind in get_args(Gating):
        assert fused.gate_disagrees(kind, dtype, DEVICE) is None
    for size in (2560, 4096, 16384):
        for weight in (dtype, torch.float32):
            assert fused.norm_disagrees(size, weight, dtype, DEVICE) is None
    for shape in (
        RecurrentShape((True,), 16, 32, 128, 128, 4),
        RecurrentShape((True,), 2, 4, 64, 32, 2),
        RecurrentShape((True,), 30, 30, 96, 192, 4, share_scale=2.0),
        RecurrentShape((True,), 32, 32, 128, 128, 4, channel_decays=True),
    ):
        assert delta.disagrees(shape, dtype, DEVICE, delta_rule.by_torch) is None
    for width in (64, 96, 128, 256):
        assert merging.disagrees(width, dtype, DEVICE) is None
        assert quest_trial.disagrees(width, width == 64, dtype, DEVICE) is None
        for kind, bits in CACHES.items():
            for turns in (0, width // 2, width):
                assert pack_trial.disagrees(kind, bits, width, turns, dtype, DEVICE) is None


@pytest.mark.parametrize("rows", [1, 5, 2048])
@pytest.mark.parametrize("scale", [1.0, 0.22])
@pytest.mark.parametrize("dtype", HALVES)
def test_sums_are_those_of_torch_to_the_bit(rows: int, scale: float, dtype: torch.dtype) -> None:
    x, added = (torch.randn(rows, 4096, device=DEVICE).to(dtype) for _ in range(2))
    weight = torch.randn(4096, device=DEVICE).to(dtype)
    expected, found = x.clone(), x.clone()
    norm = RMSNorm(weight, 1e-5, INVARIANT).forward_added(expected, added, scale)
    normed = RMSNorm(weight, 1e-5, Numerics()).forward_added(found, added, scale)
    assert torch.equal(found, expected)
    assert (normed.float() - norm.float()).abs().max() <= 0.01 * norm.float().abs().max()


@pytest.mark.parametrize("name", ["int4 g128", "int4 g64 zeros", "int4 g32", "NF4", "NF4 nested", "Q4_K", "MXFP4"])
@pytest.mark.parametrize("dtype", HALVES)
def test_products_with_what_surrounds_them_have_the_bits_of_their_parts(name: str, dtype: torch.dtype) -> None:
    """But for the norm, whose squares are summed up by fewer threads, in another order."""
    layer = KINDS[name](4096, 4096, dtype, DEVICE, Numerics()).layer
    assert isinstance(layer, PlaneLinear)
    layer.bias = torch.randn(4096, device=DEVICE).to(dtype)
    norm, streams = torch.rand(4096, device=DEVICE).to(dtype), torch.randn(2, 1, 4096, device=DEVICE).to(dtype)
    for rows, around in (
        (1, Surroundings(gating="silu")),
        (8, Surroundings(gating="silu")),
        (1, Surroundings(stream=streams[0])),
        (1, Surroundings(stream=streams[0], by=0.22)),
        (1, Surroundings(norm, 1e-5)),
        (1, Surroundings(norm, 1e-5, "gelu_tanh")),
    ):
        x = torch.randn(rows, 4096, device=DEVICE).to(dtype)
        assert surrounded.declines(layer, x, around) is None
        copied = around if around.stream is None else around._replace(stream=streams[1])
        streams[1] = streams[0]
        found, expected = surrounded.multiply(layer, x, around), surrounded.apart(layer, x, copied)
        if around.norm is None:
            assert torch.equal(found, expected), around
        else:
            assert (found.float() - expected.float()).abs().max() <= 0.01 * expected.float().abs().max()


@pytest.mark.parametrize("rows", [1, 5, 2048])
@pytest.mark.parametrize("kind", ["silu", "gelu", "gelu_tanh", "clamped"])
@pytest.mark.parametrize("dtype", HALVES)
def test_gates(rows: int, kind: str, dtype: torch.dtype) -> None:
    gate_up = 4 * torch.randn(rows, 2 * 14336, device=DEVICE).to(dtype)
    made = [ClampedSwiGLU(7.0, 1.702, numerics) if kind == "clamped" else Gated(kind, numerics)  # type: ignore[arg-type]
            for numerics in (Numerics(), INVARIANT)]  # fmt: skip
    found, expected = (gated(gate_up).float() for gated in made)
    assert (found - expected).abs().max() <= 0.01 * expected.abs().max()

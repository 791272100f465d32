"""Heads and layers as an Apple GPU would see them. (Families: test_fake_families.py.)"""

from __future__ import annotations

import pytest
import torch

from engine.compute.layers.linear import choose, int4_cuda
from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.numerics import Numerics
from tests.engine.compute.models import fake_cuda
from tests.engine.compute.models import fake_families as cases
from tests.engine.compute.models.fake_cuda import MPS

pytestmark = pytest.mark.usefixtures("metal")


def test_the_check_finds_float64() -> None:
    with fake_cuda.fake_cuda(), pytest.raises(TypeError, match="float64 on MPS"):
        torch.empty(3, device=MPS).to(torch.float64)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["eagle", "eagle 3", "mtp"])
def test_heads_hand_their_logits_to_the_host(number: int) -> None:
    batch = fake_cuda.padded_batch(cases.BATCHES["a prompt"])
    with fake_cuda.fake_cuda():
        source = cases.Weights("dense", torch.bfloat16, Numerics())
        lm = cases.model("dense", torch.bfloat16, "LlamaForCausalLM", False)
        head = cases.heads(lm, source)[number]
        assert head.logits(torch.empty(3, cases.CONFIG.hidden_size, dtype=torch.bfloat16, device=MPS)).device == (
            torch.device("cpu")
        )
    assert batch.host.T > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_four_bits_are_multiplied_by_torch_s_operator(dtype: torch.dtype) -> None:
    shape = LinearShape("int4", 128, 64, group=64, scales=torch.float16, ordered=True)
    target = Target(dtype, MPS, Numerics())
    assert choose.choose(shape, target).path.name == "torch int4 matmul on Metal"
    odd = LinearShape("int4", 128, 40, group=64, scales=torch.float16)
    found = choose.choose(odd, target)
    assert found.path.name == "dequantise and multiply"
    assert [tuple(declined) for declined in found.declined] == [
        ("torch int4 matmul on Metal", "40 output features are not a multiple of 32")
    ]
    with fake_cuda.fake_cuda():
        layer = choose.built(shape, [cases.Packed(128, 64)], None, target)
        assert isinstance(layer, int4_cuda.MetalInt4Linear)
        assert layer.scale_zero.dtype == dtype, "the operator reads both in one dtype"
        out = layer.forward(torch.empty(5, 128, dtype=dtype, device=MPS))
        assert (out.device, out.dtype, tuple(out.shape)) == (MPS, dtype, (5, 64))


@pytest.mark.parametrize("kind", ["int8", "int8 rows", "coded", "table4", "ggml"])
def test_other_weights_are_dequantised(kind: str) -> None:
    shape = LinearShape(kind, 256, 64, 8, 64, table=(0.0,) * 16, block_type=12)
    found = choose.choose(shape, Target(torch.bfloat16, MPS, Numerics()))
    assert found.path.name == "dequantise and multiply"
    assert found.declined == [], "no path of another device says why it does not serve here"

"""Forwards as an Apple GPU would see them: nothing there is in float64, and logits come to the host, which draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.layers.linear import choose, int4_cuda
from engine.layers.linear.base import LinearShape, Target
from engine.layers.numerics import Numerics
from engine.models.registry import FAMILIES
from tests.engine.models import fake_cuda
from tests.engine.models import test_fake_cuda as cases

MPS = torch.device("mps", 0)
_a_modern_gpu = cases._a_modern_gpu


class NoFloat64(TorchDispatchMode):
    """Metal has none: what makes one there raises, as PyTorch does."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.device.type == "mps" and tensor.dtype == torch.float64:
                raise TypeError(f"{function} makes float64 on MPS")
        return result


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """PyTorch's fused attention by its definition: a build without Metal does not know Metal's."""
    scores = q @ k.transpose(-1, -2) * scale
    return (scores if attn_mask is None else scores + attn_mask).softmax(-1) @ v


@pytest.fixture(autouse=True)
def _metal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", _attention)
    for module in (fake_cuda, cases):
        monkeypatch.setattr(module, "CUDA", MPS)
    monkeypatch.setattr(cases.Weights, "device", MPS)


def test_the_check_finds_float64() -> None:
    with fake_cuda.fake_cuda(), NoFloat64(), pytest.raises(TypeError, match="float64 on MPS"):
        torch.empty(3, device=MPS).to(torch.float64)


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("architecture", list(FAMILIES))
@pytest.mark.parametrize("name", ["one decoding", "chunks, decoding and a verified chain"])
def test_every_family_hands_its_logits_to_the_host(name: str, architecture: str, invariant: bool) -> None:
    batch = fake_cuda.padded_batch(cases.BATCHES[name])
    with NoFloat64():
        logits = cases.forward(batch, "dense", torch.bfloat16, architecture, invariant)
    assert (logits.device.type, tuple(logits.shape)) == ("cpu", (batch.want_logits.shape[0], cases.VOCABULARY))


@pytest.mark.parametrize("number", [0, 1, 2], ids=["eagle", "eagle 3", "mtp"])
def test_heads_hand_their_logits_to_the_host(number: int) -> None:
    batch = fake_cuda.padded_batch(cases.BATCHES["a prompt"])
    with fake_cuda.fake_cuda(), NoFloat64():
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
    with fake_cuda.fake_cuda(), NoFloat64():
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

"""The choice of a linear kernel: what is planned is what is built, on a CPU and as if on a GPU, for every kind."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.compute.layers.linear import affine, choose, ggml
from engine.compute.layers.linear.base import Linear, LinearShape, PackedLinear, Path, Target
from engine.compute.layers.linear.ggml_blocks import BLOCKS, Q4_0
from engine.compute.layers.linear.triton import ggml as triton_ggml
from engine.compute.layers.numerics import Numerics
from engine.formats.open import open_checkpoint
from engine.formats.quantised.layouts import AffineLayout, CodedLayout, ggml_layer
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from tests.contracts.linear_kind import alike
from tests.engine.compute.layers.affine_support import Affine
from tests.engine.compute.layers.packed_parts import CodedPart

CPU, CUDA, META = torch.device("cpu"), torch.device("cuda"), torch.device("meta")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
OUTPUTS, INPUTS, GROUP = 72, 256, 64


def filled(shape: LinearShape, parts: Sequence[Any], bias: Tensor, target: Target) -> Linear:
    """What is built for ``target``, with its tensors on the CPU."""
    layer = choose.unfilled(shape, target, CPU)
    layer.fill(parts)
    layer.bias = bias
    return layer


@pytest.mark.usefixtures("a_gpu")
def test_without_kvasirs_kernelsa_gpu_gets_torchs() -> None:
    layout = AffineLayout(INPUTS, GROUP, FP16, True)
    planned = layout.planned(OUTPUTS, None, Target(BF16, CUDA, Numerics(), native=False))
    assert (planned.path, planned.declined) == ("torch int4 matmul on CUDA", [])
    assert planned.storage_size() == OUTPUTS * INPUTS // 2 + OUTPUTS * INPUTS // GROUP * 4


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("type", BLOCKS, ids=lambda type: BLOCKS[type].name)
def test_blocks_of_ggml_are_planned_as_they_are_built(type: int, native: bool, device: torch.device) -> None:
    if type == Q4_0 and device == CUDA and not native:
        pytest.skip("torch's operator packs on a GPU")
    part = ggml.GgmlWeights(type, triton_ggml.sample(type, OUTPUTS, INPUTS), INPUTS)
    bias, target = torch.randn(OUTPUTS).to(BF16), Target(BF16, device, Numerics(), native)
    on_meta = part._replace(data=part.data.to(META))
    planned = ggml_layer([on_meta], bias.to(META), target, planning=True)
    parts = [ggml.AffineQ4(part)] if type == Q4_0 else [part]
    assert alike(planned, filled(ggml.shape(type, INPUTS, OUTPUTS), parts, bias, target))
    tables = [ggml.GgmlEmbedding(weights, BF16, weights.data.device) for weights in (on_meta, part)]
    planned_head, head = (choose.tied_head(embedding, target) for embedding in tables)
    assert alike(planned_head, head)
    if device == CPU and native:
        assert tables[1].head is head, "it holds the weights, in another form"
    else:
        assert head.data is tables[1].data


@pytest.mark.usefixtures("a_gpu")
def test_a_model_is_planned_for_the_device_that_it_goes_to(tmp_path: pathlib.Path) -> None:
    shape = Shape("tiny", layers=1, hidden=64, ffn=128, heads=4, kv_heads=2, vocabulary=504, context=1024)
    checkpoint = open_checkpoint(gptq_folder(shape, tmp_path))
    for device, own in ((CUDA, True), (CPU, False)):
        packed = [layer for _, layer in checkpoint.planned(BF16, device=device).linears() if layer.kind != "dense"]
        assert [layer.path == "Triton kernel" for layer in packed] == [own] * len(packed)
        assert checkpoint.resident_bytes(BF16, device=device) == checkpoint.planned(BF16, "4bit", device).storage_size()
    assert packed


def test_what_only_the_contents_tell() -> None:
    parts = [Affine(8, 64, 32, seed, symmetric=True) for seed in (1, 2)]
    assert affine.surveyed(parts) == LinearShape("int4", 64, 16, group=32, scales=FP16, symmetric=True)
    parts[1].scales, parts[1].zeros[0, 3] = parts[1].scales.bfloat16(), 7
    assert affine.surveyed(parts) == LinearShape("int4", 64, 16, group=32, scales=FP32)
    part = CodedPart(8, OUTPUTS, INPUTS, GROUP, False, True, FP16)
    part.group_of = torch.zeros(INPUTS, dtype=torch.int32)
    uneven = CodedLayout(INPUTS, 8, GROUP, FP16, False, True).surveyed([part])
    assert (uneven.symmetric, uneven.ordered, uneven.even) == (True, True, False)
    reasons = [declined.reason for declined in choose.choose(uneven, Target(FP32, CPU, Numerics())).declined]
    assert reasons == [f"it has no even groups of {GROUP} over {INPUTS} input features"]


# --- a kind of one's own ---------------------------------------------------------------------------------------------


class Doubled(PackedLinear):
    """``W`` is twice what is held."""

    kind, path, held = "doubled", "by halves", ("half",)

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.half = torch.empty(shape.out_features, shape.in_features, dtype=target.dtype, device=device)

    def fill(self, parts: Sequence[Tensor]) -> None:
        self.half.copy_(torch.cat(list(parts)))

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x @ self.half.t()

    def forward_float32(self, x: Tensor) -> Tensor:
        return self.forward(x.float())

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        return (2 * self.half).to(dtype)


def test_a_kind_is_added_by_registering_its_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "_PATHS", dict(choose._PATHS))
    odd = Path("for odd sizes", Doubled, lambda shape, target: None if shape.in_features % 2 else "the size is even")
    choose.register("doubled", [Path("kernel", Doubled, device="cuda"), odd, Path("by halves", Doubled)])
    shape, target, weight = LinearShape("doubled", 4, 6), Target(FP32, CPU, Numerics()), torch.randn(6, 4)
    layer = choose.built(shape, weight.split(3), None, target)
    assert [tuple(declined) for declined in layer.declined] == [("for odd sizes", "the size is even")]
    assert torch.equal(layer.dequantised(FP32), 2 * weight)
    out = torch.empty(6, 4)
    layer.write(out)
    assert torch.equal(out, 2 * weight)
    assert alike(choose.planned(shape, None, target), layer)
    with pytest.raises(ValueError, match="the size is even"):
        choose.choose(shape, target, [odd])

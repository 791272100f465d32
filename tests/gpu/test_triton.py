"""The Triton kernels on a GPU, in 16 bits, against the definition. Skipped where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from engine.compute.layers.linear.triton.int4 import try_kernels
from engine.compute.layers.numerics import Numerics
from tests.gpu.gpu_support import DEVICE, NO_GPU, relative

if DEVICE.type != "cuda" or not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
pytest.importorskip("triton")

from tests.gpu.kernel_kinds import KINDS

HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALVES)
def test_the_kernels_prove_themselves(dtype: torch.dtype) -> None:
    assert try_kernels(dtype, DEVICE) is None


@pytest.mark.parametrize("sizes", [(40, 512), (136, 1280), (1000, 4096)])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", list(KINDS))
def test_a_kind(name: str, dtype: torch.dtype, sizes: tuple[int, int]) -> None:
    numerics = Numerics()
    layer, weight = KINDS[name](*sizes, dtype, DEVICE, numerics)
    bias = layer.bias = torch.linspace(-1, 1, sizes[0]).to(DEVICE, dtype)
    assert torch.equal(layer.dequantised(torch.float32).cpu(), weight)
    x = torch.randn(600, sizes[1]).to(dtype)
    expected = x.double() @ weight.double().t() + bias.double().cpu()
    for rows in (1, 2, 5, 8, 9, 16, 17, 40, 70, 300, 600):
        for found in (layer.forward(x[:rows].to(DEVICE)), layer.forward_float32(x[:rows].to(DEVICE))):
            assert found.device.type == "cuda"
            assert relative(found, expected[:rows]) < 0.02
    numerics.batch_invariant = True
    whole = layer.forward(x.to(DEVICE))
    for start, stop in [(0, 1), (3, 4), (5, 21), (1, 70), (299, 300)]:
        assert torch.equal(layer.forward(x[start:stop].to(DEVICE)), whole[start:stop])

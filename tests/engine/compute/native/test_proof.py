"""Which GPUs run which kernels, by what a GPU says of itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton")

from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.triton import int4, table
from engine.compute.layers.numerics import Numerics
from engine.compute.native import gpu, proof
from engine.compute.native.gpu import TURING

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _turing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(proof.triton_compiler, "unavailable", lambda: None)
    monkeypatch.setattr(proof.triton_compiler, "install", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: TURING)
    gpu.capability.cache_clear()
    yield
    gpu.capability.cache_clear()


def test_a_kernel_says_how_old_a_gpu_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proof.machine_declines(torch.float16, CUDA) == "the GPU is older than compute capability 8.0"
    assert proof.machine_declines(torch.float16, CUDA, TURING) is None
    assert proof.machine_declines(torch.bfloat16, CUDA, TURING) == "the GPU has no bfloat16"
    gpu.capability.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert proof.machine_declines(torch.float16, CUDA, TURING) == "the GPU is older than compute capability 7.5"


def test_turing_is_given_the_kernels_that_there_are_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (int4, table):
        monkeypatch.setattr(module, "_disagrees", lambda *traits: None)
    target = Target(torch.float16, CUDA, Numerics())
    shape = LinearShape("int4", 512, 64, group=128, scales=torch.float16)
    assert choose.choose(shape, target).path.name == choose.TRITON
    values = tuple(float(code) for code in range(16))
    assert choose.choose(LinearShape("table4", 512, 64, group=64, table=values), target).path.name == choose.TRITON
    eight = choose.choose(LinearShape("int8", 512, 64, 8, 128, torch.float16), target)
    assert (eight.path.name, eight.declined[0].reason) == (
        "dequantise and multiply", "the GPU is older than compute capability 8.0"
    )  # fmt: skip

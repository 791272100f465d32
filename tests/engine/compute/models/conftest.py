"""GPUs that are not there: an NVIDIA one that is modern, and Apple's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.compute.attention.backends import sdpa
from engine.compute.attention.triton import merging, pack_trial, quest_trial
from engine.compute.layers import moe
from engine.compute.layers.linear import blocks, int4, int4_cuda
from engine.compute.layers.triton import delta, fused
from engine.compute.sampling import noise
from tests.engine.compute.models import fake_cuda, fake_families
from tests.engine.compute.models.fake_cuda import MPS


@pytest.fixture
def modern_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One of compute capability 9.0, on which Kvasir's kernels cannot be tried."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(int4_cuda, "_operator_fails", lambda device, tiles, dtype: None)
    monkeypatch.setattr(sdpa, "_flash_cuda_fails", lambda device, dtype, width: None)
    trials = [(module, "disagrees") for module in (pack_trial, quest_trial, merging)]
    for module, proof in (*trials, (fused, "norm_disagrees"), (fused, "gate_disagrees"), (delta, "disagrees")):
        monkeypatch.setattr(module, proof, lambda *traits: "kernels cannot be tried on a pretended GPU")
    # The one thing that a forward waits for: which experts its rows chose. Fakes have no contents.
    monkeypatch.setattr(moe, "on_host", lambda asked, experts: [1, 0, asked.shape[0] - 1, 0])
    # What is kept from call to call must not outlive the test: it is fake.
    scratch = blocks._Scratch()
    for module in (blocks, int4):
        monkeypatch.setattr(module, "scratch", scratch)
    yield
    noise._mixed_vocabulary.cache_clear()


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


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch, modern_gpu: None) -> Iterator[None]:
    """Tensors on "the GPU" are on Apple's, where nothing may be in float64."""
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", _attention)
    for module in (fake_cuda, fake_families):
        monkeypatch.setattr(module, "CUDA", MPS)
    monkeypatch.setattr(fake_families.Weights, "device", MPS)
    with NoFloat64():
        yield

"""Native kernels of every instruction set at hand, and a GPU that is not there."""

from __future__ import annotations

import pytest
import torch

from engine.compute.layers.linear import choose, int4_cuda
from engine.compute.layers.linear.triton import ggml, int4, int8, table
from engine.compute.native.instructions import VARIABLE
from tests.engine.compute.native.instruction_sets import activations


@pytest.fixture
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """See `tests.engine.compute.native.instruction_sets.each_kernel`."""
    monkeypatch.setenv(VARIABLE, request.param)
    return activations(request.param)


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that agree with the definition: packing for them needs no GPU."""
    monkeypatch.setattr(choose, "machine_declines", lambda *_: None)
    for module in (int4, int8, table, ggml):
        monkeypatch.setattr(module, "_disagrees", lambda *of: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(int4_cuda, "_operator_fails", lambda device, tiles, dtype: None)

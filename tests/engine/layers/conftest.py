"""Native kernels of every instruction set at hand."""

from __future__ import annotations

import pytest
import torch

from engine.native.instructions import VARIABLE
from tests.engine.instruction_sets import activations


@pytest.fixture
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """See `tests.engine.instruction_sets.each_kernel`."""
    monkeypatch.setenv(VARIABLE, request.param)
    return activations(request.param)

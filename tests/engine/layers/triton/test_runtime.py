"""What the trial of a kernel says where it cannot be tried."""

from __future__ import annotations

import subprocess

import pytest
import torch

from engine.layers.linear.base import PackedLinear, Target
from engine.layers.linear.triton.runtime import disagrees

CPU = torch.device("cpu")


def reason(error: Exception) -> str | None:
    def layer(target: Target) -> PackedLinear:
        raise error

    return disagrees(layer, lambda: torch.ones(1, 1), torch.float16, CPU)


def test_reasons() -> None:
    failed = subprocess.CalledProcessError(1, ["/usr/bin/gcc", "main.c"])
    assert "python3-dev" in str(reason(failed))
    long = RuntimeError("x" * 5000 + "\nmore")
    assert reason(long) == f"it fails here ({'x' * 300})"
    assert reason(KeyError()) == "it fails here (KeyError)"


def test_memory_that_is_full_is_no_reason_to_remember() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        reason(torch.OutOfMemoryError("CUDA out of memory"))

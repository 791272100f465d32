"""What the trial of a kernel says where it cannot be tried."""

from __future__ import annotations

import subprocess

import pytest
import torch

from engine.layers.linear.triton.runtime import Trial, disagrees

CPU = torch.device("cpu")


def raises(error: Exception) -> Trial:
    raise error


def test_reasons() -> None:
    failed = subprocess.CalledProcessError(1, ["/usr/bin/gcc", "main.c"])
    assert "python3-dev" in str(disagrees(lambda: raises(failed), torch.float16, CPU))
    long = RuntimeError("x" * 5000 + "\nmore")
    assert disagrees(lambda: raises(long), torch.float16, CPU) == f"it fails here ({'x' * 300})"
    assert disagrees(lambda: raises(KeyError()), torch.float16, CPU) == "it fails here (KeyError)"


def test_memory_that_is_full_is_no_reason_to_remember() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        disagrees(lambda: raises(torch.OutOfMemoryError("CUDA out of memory")), torch.float16, CPU)

"""What the trial of a kernel says where it cannot be tried."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
import torch

from engine.compute.layers.linear.base import PackedLinear, Target
from engine.compute.layers.linear.triton.experts import _alike
from engine.compute.layers.linear.triton.table import TableSample
from engine.compute.layers.linear.triton.trial import disagrees
from engine.compute.layers.numerics import Numerics

CPU = torch.device("cpu")


def reason(error: Exception) -> str | None:
    def layer(target: Target) -> PackedLinear:
        raise error

    return disagrees(("a layer",), layer, lambda: torch.ones(1, 1), torch.float16, CPU)


def test_reasons() -> None:
    failed = subprocess.CalledProcessError(1, ["/usr/bin/gcc", "main.c"])
    assert "python3-dev" in str(reason(failed))
    long = RuntimeError("x" * 5000 + "\nmore")
    assert reason(long) == f"it fails here ({'x' * 300})"
    assert reason(KeyError()) == "it fails here (KeyError)"


def test_memory_that_is_full_is_no_reason_to_remember() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        reason(torch.OutOfMemoryError("CUDA out of memory"))


def test_experts_with_another_table_are_not_computed_together() -> None:
    def alike(factor: float) -> object:
        sample = TableSample(8, 64, 64, None)
        table = tuple(value * factor for value in sample.shape.table)
        sample.shape = replace(sample.shape, table=table)
        return _alike(sample.layer(Target(torch.float16, CPU, Numerics())))

    assert alike(1.0) == alike(1.0)
    assert alike(1.0) != alike(2.0)

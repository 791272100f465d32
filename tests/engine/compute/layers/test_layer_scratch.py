"""The buffers that dequantisation reuses."""

from __future__ import annotations

import pytest
import torch

from engine.compute.layers.linear import blocks
from engine.compute.layers.linear.blocks import _Scratch

CPU = torch.device("cpu")


def test_a_captured_step_has_buffers_that_no_other_step_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = _Scratch()

    def taken(capturing: bool) -> torch.Tensor:
        monkeypatch.setattr(blocks, "_capturing", lambda device: capturing)
        return scratch.take("block", (4, 8), torch.bfloat16, CPU)

    usual, captured, after = taken(False), taken(True), taken(False)
    assert captured.shape == usual.shape == (4, 8)
    assert captured.data_ptr() != usual.data_ptr() == after.data_ptr()


def test_nothing_is_captured_on_a_cpu() -> None:
    assert not blocks._capturing(CPU)

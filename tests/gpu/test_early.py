"""Kernels that start early on this GPU, in graphs, beside those that do not."""

from __future__ import annotations

import pytest
import torch

from engine.compute.native import early
from tests.gpu.gpu_support import DEVICE, NO_GPU

if DEVICE.type != "cuda" or not torch.cuda.is_available():
    pytest.skip(NO_GPU, allow_module_level=True)
pytest.importorskip("triton")

from tests.gpu.check.first import kernels, layers
from tests.gpu.pretended import LLAMA_8B, shortened

GPU = torch.device("cuda", 0)
CONFIG = shortened(LLAMA_8B.changed(vocab_size=32064), 3)


def test_a_gpu_starts_kernels_early_or_says_why_not() -> None:
    reason = early.declines(GPU)
    assert (reason is None) == (torch.cuda.get_device_capability() >= (9, 0)), reason


def test_what_reads_too_soon_is_noticed() -> None:
    found = kernels.producer(GPU)
    if found["absent"]:
        pytest.skip(found["absent"])
    assert found["wrong"] == 0
    assert found["control"] > 0


@pytest.mark.parametrize("fetched", [0, 8])
def test_steps_have_the_same_bits(fetched: int) -> None:
    if reason := early.declines(GPU):
        pytest.skip(reason)
    torch.manual_seed(1)
    plain = layers.Stepped(CONFIG, GPU)
    torch.manual_seed(1)
    stepped = layers.Stepped(CONFIG, GPU, True, fetched)
    for _ in range(6):
        expected, found = plain.step().logits.clone(), stepped.step().logits.clone()
        assert torch.equal(found, expected)
    assert stepped.runner.eager == ""
    assert stepped.runner.graphs is not None
    assert stepped.runner.graphs.late == ""

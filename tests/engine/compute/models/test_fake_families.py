"""Every family's forward as a GPU would see it: no device is mixed, and nothing within it waits for the device.

On Apple's nothing is in float64, and logits come to the host, which draws.
"""

from __future__ import annotations

import pytest
import torch

from engine.compute.models.registry import FAMILIES
from tests.engine.compute.models.fake_cuda import CUDA, MPS, padded_batch
from tests.engine.compute.models.fake_families import BATCHES, VOCABULARY, forward
from tests.kit.pairs import pairs


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> torch.device:
    """By the fixture that pretends it."""
    request.getfixturevalue(request.param)
    return MPS if request.param == "metal" else CUDA


@pytest.mark.content("engine/compute/models/families")
@pytest.mark.always("architecture")
@pairs(
    name=list(BATCHES)[::-1],
    architecture=list(FAMILIES),
    invariant=[False, True],
    gpu=["modern_gpu", "metal"],
    indirect=["gpu"],
)
def test_every_family_stays_on_the_gpu(name: str, architecture: str, invariant: bool, gpu: torch.device) -> None:
    """The richest batch stands for the others where nothing has changed."""
    batch = padded_batch(BATCHES[name])
    logits = forward(batch, "dense", torch.bfloat16, architecture, invariant)
    assert logits.device == (torch.device("cpu") if gpu == MPS and batch.host.L else gpu)
    assert tuple(logits.shape) == (batch.want_logits.shape[0], VOCABULARY)
    assert logits.dtype == (torch.float32 if invariant and batch.host.L else torch.bfloat16)

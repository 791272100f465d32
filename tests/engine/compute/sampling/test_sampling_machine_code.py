"""Sampling's kernels compile for every GPU generation without one here, and spill nothing."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.gpu.machine_code import MORE_SPILLED, TARGETS
from tests.gpu.sampling_code import VOCABULARIES, code_of, launches

pytestmark = pytest.mark.content("engine/compute/sampling")
SHARED = 99 << 10
"""Bytes that a program may have on sm_86, 89 and 120."""


def check(vocabulary: int, dtype: torch.dtype, targets: tuple[int, ...]) -> None:
    found = launches(vocabulary, dtype)
    few = 8 if vocabulary < 4096 else 0  # fewer warps hold the same list
    assert sorted(found) == ["pick", "pick, truncated", "scan", "scan, truncated", "truncate"]
    for name, launch in found.items():
        for sm in targets:
            code = code_of(launch, sm)
            assert code.spilled <= MORE_SPILLED + few, (name, sm)
            assert code.shared <= SHARED, (name, sm)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vocabulary", "targets"), [(128256, (75, 90)), pytest.param(907, (90,), marks=pytest.mark.always)]
)
def test_the_kernels_for_large_and_small_vocabularies(vocabulary: int, targets: tuple[int, ...]) -> None:
    check(vocabulary, torch.bfloat16, targets)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_kernel_on_every_target(vocabulary: int, dtype: torch.dtype) -> None:
    check(vocabulary, dtype, (75, *TARGETS))

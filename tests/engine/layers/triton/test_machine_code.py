"""The kernels compile for every GPU generation without one here, and their inner loops stay as lean as they were."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.layers.linear.triton.runtime import FIXED, tile
from tests.gpu.kernel_kinds import KINDS
from tests.gpu.machine_code import TARGETS, cases, launches, look

BOUNDS = {"int4 g128": 2.0, "int4 g64 zeros": 2.8, "NF4": 5.5, "int8 rows": 5.0, "Q6_K": 16.0}
"""Instructions a weight for one row: some above those of docs/measurements.md."""
SHARED = 99 << 10
"""Bytes that a program may have on sm_86, 89 and 120."""


@pytest.mark.parametrize("name", ["int4 g128", "NF4", "Q6_K"])
def test_the_inner_loop_for_one_row(name: str) -> None:
    code = look(launches(name, torch.bfloat16, tile(1)), 90)
    assert 1 < code.per_weight < BOUNDS[name]
    assert (code.spilled, code.wide > 0) == (0, True)
    assert code.shared <= SHARED
    assert any("HMMA" in operation for operation in code.operations)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list(KINDS))
def test_every_kernel_on_every_target(name: str, dtype: torch.dtype) -> None:
    for _, rows, cut in cases([name]):
        for sm in TARGETS:
            code = look(launches(name, dtype, cut), sm)
            assert code.shared <= SHARED
            assert code.spilled == 0 or cut == FIXED, (rows, sm)
            if rows == "1" and name in BOUNDS:
                assert code.per_weight < 1.2 * BOUNDS[name]

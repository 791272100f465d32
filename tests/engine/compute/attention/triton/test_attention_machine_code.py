"""The attention kernels compile for every GPU generation without one here, and their loops stay lean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from engine.compute.attention.triton import launch
from tests.gpu.attention_code import CASES, code_of
from tests.gpu.machine_code import MORE_SPILLED, TARGETS, jumped

pytestmark = pytest.mark.content("engine/compute/attention/triton")
BOUNDS = {"decode dense": 5.8, "decode int8": 3.0, "decode int8 256": 3.0, "decode fp8": 10.8, "decode int4": 10.0,
          "decode int4 96": 17.0, "decode kivi 4": 13.0, "quest pages": 9.0}  # fmt: skip
"""Instructions a number: a tenth above what they were. Of int8 they are at most 3: an H200 has 7 for each at its
memory's full speed."""
SPILLED = {"quest pages": 16, "tree, bounds, cap": 20}
"""Instructions that spill registers: those over chosen pages in none of their products, trees with bounds and a cap on
sm_80 and 120."""
SHARED = 99 << 10
"""Bytes that a program may have on sm_86, 89 and 120."""


ALWAYS = [pytest.param(case, marks=pytest.mark.always) for case in ("decode dense", "decode int8")]


@pytest.mark.parametrize("case", [*ALWAYS, "decode int4", "decode int8 256"])
def test_the_loop_over_keys(case: str) -> None:
    code = code_of(case, torch.bfloat16, 90)
    assert 1 < code.per_weight < BOUNDS[case]
    assert (code.spilled, code.wide > 0) == (0, True)
    assert any("MMA" in operation for operation in code.operations)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", list(CASES))
def test_every_kernel_on_every_target(case: str, dtype: torch.dtype) -> None:
    for sm in TARGETS:
        code = code_of(case, dtype, sm)
        assert code.shared <= SHARED
        assert code.spilled <= SPILLED.get(case, 0) + MORE_SPILLED, sm
        if case in BOUNDS:
            assert code.per_weight < (1.0 if case.startswith("decode int8") else 1.2) * BOUNDS[case]


@pytest.mark.always
def test_trees_lay_no_mask_over_the_prefix() -> None:
    """The masks are jumped over where a block ends before the new rows, but for bounds that lie anywhere."""
    code = code_of("tree dense", torch.bfloat16, 90)
    assert code.per_weight * (1 - jumped(code)) < 8.0
    assert jumped(code) > 0.25
    assert jumped(code_of("tree, bounds, cap", torch.bfloat16, 90)) < 0.1


@pytest.mark.always
def test_two_codes_of_eight_bits_become_float16_at_once() -> None:
    """What the PTX says, worked out for all codes: ``(a & b) ^ c`` is the table 0x6A of a, b and c."""
    lines = [line.strip(" }").rstrip(";").replace(",", "").split() for line in launch.BYTES.splitlines()]
    assert [line[0] for line in lines] == ["{", "lop3.b32", "shr.u32", "lop3.b32"]
    table = sum((((a & b) ^ c) & 1) << (4 * a + 2 * b + c) for a in (0, 1) for b in (0, 1) for c in (0, 1))
    codes = np.arange(-128, 128, dtype=np.int8)
    pairs = np.stack([np.repeat(codes, 256), np.tile(codes, 256)], 1)
    words = pairs.reshape(-1).view(np.uint32)
    found = {}
    for name, to, of, *numbers in lines[1:]:
        source = {"$2": words}.get(of, found.get(of))
        if name == "shr.u32":
            found[to] = source >> int(numbers[0])
        else:
            mask, other, wanted = (int(number, 16) for number in numbers)
            assert wanted == table
            found[to] = (source & np.uint32(mask)) ^ np.uint32(other)
    for place, register in enumerate(("$0", "$1")):
        values = found[register].view(np.float16).astype(np.float32)
        assert (values == launch.BYTES_MAGIC + pairs[:, place]).all()

"""The attention kernels compile for every GPU generation without one here, and their loops stay lean."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from engine.compute.attention.triton import few_rows, launch
from tests.gpu.attention_code import CASES, code_of
from tests.gpu.machine_code import MORE_SPILLED, TARGETS, compiled, jumped

pytestmark = pytest.mark.content("engine/compute/attention/triton")
BOUNDS = {"decode dense": 5.8, "decode int8": 2.4, "decode int8 64": 3.0, "decode int8 256": 2.8, "decode fp8": 10.8,
          "decode int4": 2.8, "decode int4 64": 3.0, "decode int4 96": 4.0, "decode int4 256": 3.0, "whole dense": 5.8,
          "whole int8": 2.4, "whole int8 64": 3.0, "whole int8 96": 3.2, "whole int8 256": 2.8, "whole fp8": 10.8,
          "whole int4": 2.8, "whole int4 64": 3.0, "whole int4 96": 4.0, "whole int4 256": 3.0, "decode kivi 4": 13.0,
          "quest pages": 9.0}  # fmt: skip
"""Instructions a number: a tenth above what they were. Of int8 and int4 they are at most 3, and 4 of 96 channels: an
H200 has 7 for each of 8 bits at its memory's full speed, and 4 for each of 4.5."""
FEW = ("decode int8", "decode int4", "whole int8", "whole int4")
SPILLED = {
    "decode int4": 4,
    "decode int4 96": 10,
    "decode int4 256": 2,
    "decode int8 256": 2,
    "whole dense 64": 8,
    "whole dense 256": 8,
    "whole int8 64": 2,
    "whole int8 256": 4,
    "whole fp8": 8,
    "whole int4": 4,
    "whole int4 96": 20,
    "whole int4 256": 10,
    "quest pages": 16,
}
"""Instructions that spill registers: those over chosen pages in none of their products."""
SHARED = 99 << 10
"""Bytes that a program may have on sm_86, 89 and 120."""


ALWAYS = [pytest.param(case, marks=pytest.mark.always) for case in ("decode dense", "decode int8", "decode int4")]


@pytest.mark.parametrize(
    "case",
    [
        *ALWAYS,
        "decode int4 256",
        "decode int8 256",
        "whole dense",
        "whole int8",
        "whole int8 64",
        "whole int4",
        "whole int4 64",
        "whole int4 96",
    ],
)
def test_the_loop_over_keys(case: str) -> None:
    code = code_of(case, torch.bfloat16, 90)
    assert 1 < code.per_weight < BOUNDS[case]
    assert code.spilled <= SPILLED.get(case, 0)
    assert not any(operation.startswith(("STL", "LDL")) for operation in code.operations), "none of them in the loop"
    assert code.wide > 0
    assert any("MMA" in operation for operation in code.operations)


@pytest.mark.always
@pytest.mark.parametrize("case", ["whole dense", "whole int8", "whole int4"])
def test_what_other_threads_wrote_is_read_after_a_barrier(case: str) -> None:
    """The new key and value before any is fetched, and the parts of all splits before the last one merges them."""
    lines = compiled(CASES[case](torch.bfloat16).launch, 90).asm["ptx"].splitlines()
    patterns = {"store": r"st\.global", "barrier": r"bar\.sync", "fetch": r"cp\.async\.c", "atom": r"atom\.global"}
    find = {
        name: [place for place, line in enumerate(lines) if re.search(pattern, line)]
        for name, pattern in patterns.items()
    }
    fetched, (arrived,) = find["fetch"][0], find["atom"]
    written = max(place for place in find["store"] if place < fetched)
    assert any(written < place < fetched for place in find["barrier"])
    ended = max(place for place in find["store"] if place < arrived)
    assert any(ended < place < arrived for place in find["barrier"])
    assert "atom.global.gpu.acq_rel" in lines[arrived]
    after = [line for line in lines[arrived:] if "ld.global" in line]
    assert len(after) > launch.MERGED
    assert all("ld.global.cg" in line for line in after), "not by way of this multiprocessor's own cache"


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
            assert code.per_weight < (1.0 if case.startswith(FEW) else 1.2) * BOUNDS[case]


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
    lines = [line.strip(" }").rstrip(";").replace(",", "").split() for line in few_rows.BYTES.splitlines()]
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
        assert (values == few_rows.BYTES_MAGIC + pairs[:, place]).all()


@pytest.mark.always
def test_two_codes_of_four_bits_become_float16_at_once() -> None:
    """What the PTX says, worked out for all bytes: two of the lower and two of the higher codes of a register."""
    lines = [line.strip(" }").rstrip(";").replace(",", "").split() for line in few_rows.NIBBLES.splitlines()][1:]
    assert {line[0] for line in lines} == {"and.b32", "shr.u32"}
    codes = np.stack([np.repeat(np.arange(256, dtype=np.uint8), 256), np.tile(np.arange(256, dtype=np.uint8), 256)], 1)
    registers = {"$4": codes.reshape(-1).view(np.uint32)}
    for name, to, of, number in lines:
        by = np.uint32(int(number, 0))
        registers[to] = registers[of] >> by if name == "shr.u32" else registers[of] & by
    for place in (0, 1):
        low, high = (registers[f"${2 * place + plane}"].view(np.float16).astype(np.float64) for plane in (0, 1))
        assert (low * few_rows.NIBBLES_UNIT == codes[:, place] % 16).all()
        assert (high * few_rows.NIBBLES_UNIT == codes[:, place] // 16 * 16).all()

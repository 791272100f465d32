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
BOUNDS = {"decode dense": 5.8, "decode int8": 2.4, "decode int8 64": 2.8, "decode int8 256": 2.6, "decode fp8": 10.8,
          "decode int4": 2.8, "decode int4 64": 3.0, "decode int4 96": 3.7, "decode int4 256": 3.0, "whole dense": 5.8,
          "whole int8": 2.4, "whole int8 64": 2.8, "whole int8 96": 3.2, "whole int8 256": 2.6, "whole fp8": 10.8,
          "whole int4": 2.8, "whole int4 64": 3.0, "whole int4 96": 3.7, "whole int4 256": 3.0, "decode kivi 4": 13.0,
          "quest pages": 9.0}  # fmt: skip
"""Instructions a number: a tenth above what they were. Of int8 and int4 they are at most 3, and 3.7 of int4 in heads of
96: an H200 has 7 for each of 8 bits at its memory's full speed, and 4 for each of 4.5."""
FEW = ("decode int8", "decode int4", "whole int8", "whole int4")
SPILLED = {"decode int8 64": 4, "whole dense 64": 8, "whole dense 256": 8, "whole fp8": 8, "quest pages": 16}
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


def executed(ptx: str, registers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a text of PTX leaves in registers, each of uint32."""
    for line in ptx.replace("}", "").split(";")[:-1]:
        name, *places = line.replace(",", " ").split()
        if name in ("{", ".reg"):
            continue
        to, *operands = places
        numbers = [registers[one] if one in registers else np.uint32(int(one, 0)) for one in operands]
        if name == "shr.u32":
            registers[to] = numbers[0] >> numbers[1]
        elif name == "and.b32":
            registers[to] = numbers[0] & numbers[1]
        else:
            assert name == "lop3.b32"
            a, b, c, table = numbers
            registers[to] = np.zeros_like(a)
            for place in range(8):
                if int(table) >> place & 1:
                    chosen = [x if place >> by & 1 else ~x for x, by in ((a, 2), (b, 1), (c, 0))]
                    registers[to] = registers[to] | chosen[0] & chosen[1] & chosen[2]
    return registers


BYTES = np.stack([np.repeat(np.arange(256, dtype=np.uint8), 256), np.tile(np.arange(256, dtype=np.uint8), 256)], 1)
"""[65536, 2], all pairs of bytes; two of them are a register."""


@pytest.mark.always
def test_two_codes_of_eight_bits_become_float16_at_once() -> None:
    """What the PTX says, worked out for all codes."""
    found = executed(few_rows.BYTES, {"$2": BYTES.reshape(-1).view(np.uint32)})
    for place in (0, 1):
        values = found[f"${place}"].view(np.float16).astype(np.float32)
        assert (values == few_rows.BYTES_MAGIC + BYTES[:, place].view(np.int8)).all()


def codes_of(register: np.ndarray) -> np.ndarray:
    return register.view(np.float16).astype(np.float64) * few_rows.NIBBLES_UNIT


@pytest.mark.always
def test_two_codes_of_four_bits_become_float16_at_once() -> None:
    """What the PTX says, worked out for all bytes: two of the lower and two of the higher codes of a register; and of
    heads of 96 channels, of two registers, with halves either way about."""
    words = BYTES.reshape(-1).view(np.uint32)
    found = executed(few_rows.NIBBLES, {"$4": words})
    for place in (0, 1):
        assert (codes_of(found[f"${place}"]) == BYTES[:, place] % 16).all()
        assert (codes_of(found[f"${2 + place}"]) == BYTES[:, place] // 16 * 16).all()
    others = BYTES[::-1]
    for first in (True, False):
        half = np.full_like(words, 0xFFFFFFFF if first else 0)
        rest = np.ascontiguousarray(others).reshape(-1).view(np.uint32)
        found = executed(few_rows.MIXED_NIBBLES, {"$6": words, "$7": rest, "$8": half})
        for place in (0, 1):
            own, other = BYTES[:, place], others[:, place]
            assert (codes_of(found[f"${place}"]) == own % 16).all()
            assert (codes_of(found[f"${2 + place}"]) == (own // 16 * 16 if first else other % 16)).all()
            assert (codes_of(found[f"${4 + place}"]) == (other if first else own) // 16 * 16).all()

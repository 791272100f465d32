"""The kinds without a fast kernel of torch's: what is held, and codes that lie in two words."""

from __future__ import annotations

import torch

from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import Nested, Target
from engine.compute.layers.linear.coded import unpack, word_count
from engine.compute.layers.numerics import Numerics
from tests.contracts.linear_kind import LinearKindContract
from tests.engine.compute.layers.packed_parts import Packed, cases, coded, table


class TestCoded(LinearKindContract):
    cases = cases("int2", "int3", "int5", "int6", "int8")
    unserved = (
        "int3, short",
        "int8, short",
        "int2",
        "int3",
        "int3, ordered",
        "int5",
        "int6",
        "int8, ordered",
        "int8, ordered, zeros",
    )


class TestTables(LinearKindContract):
    cases = cases("table")
    unserved = ("table, short",)


class TestRows(LinearKindContract):
    cases = cases("rows")


def held(packed: Packed) -> int:
    target = Target(torch.float32, torch.device("cpu"), Numerics(), native=False)
    return choose.built(*packed, None, target).storage_size()


def test_what_says_nothing_is_not_held() -> None:
    """Zero-points in the middle are dropped: what is left is the codes and the scales."""
    outputs, inputs = 40, 96
    scales = 2 * outputs * (inputs // 32)
    symmetric = held(coded(3, outputs, inputs, 32, zeros=False))
    assert symmetric == 4 * outputs * word_count(inputs, 3) + scales
    assert held(coded(3, outputs, inputs, 32)) == symmetric + scales // 2
    assert held(coded(8, outputs, inputs, 32, zeros=False, order=True)) == outputs * inputs + scales + 4 * inputs
    assert held(table(outputs, inputs, 64, Nested(256, 0.0))) == outputs * inputs // 2 + 64 + 60 + 4 + 1024


def test_three_bits_cross_words() -> None:
    """AutoGPTQ's three words of 32 codes are one stream: codes 10 and 21 lie in two words."""
    codes = [place % 8 for place in range(32)]
    stream = sum(code << 3 * place for place, code in enumerate(codes))
    parts = torch.tensor([(stream >> 32 * place) & 0xFFFFFFFF for place in range(3)])
    assert unpack(parts.to(torch.int32)[:, None], 3, 32)[:, 0].tolist() == codes

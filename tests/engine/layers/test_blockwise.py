"""The kinds without a fast kernel: rows that do not know their neighbours, blocks at any place, what is held."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.layers.linear.affine import AffineColumns
from engine.layers.linear.base import LinearShape, Nested, Target
from engine.layers.linear.blockwise import BlockwiseLinear
from engine.layers.linear.coded import CodedLinear, unpack, word_count
from engine.layers.linear.int8 import Int8Linear, Int8RowsLinear
from engine.layers.linear.table import TableLinear
from engine.layers.numerics import Numerics

CPU = torch.device("cpu")
INPUTS, OUTPUTS = 96, 40


class Codes:
    """Random codes of some bits (a CodedWeights)."""

    def __init__(self, bits: int, group_size: int, ordered: bool, symmetric: bool) -> None:
        generator = torch.Generator().manual_seed(bits)
        self.in_features, self.out_features, self.bits, self.group_size = INPUTS, OUTPUTS, bits, group_size
        groups = -(-INPUTS // group_size)
        shape = (word_count(INPUTS, bits), OUTPUTS)
        self.words = torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int32, generator=generator)
        self.scales = torch.rand(groups, OUTPUTS, generator=generator).half()
        self.zeros = torch.randint(0, 1 << bits, (groups, OUTPUTS), dtype=torch.uint8, generator=generator)
        if symmetric:
            self.zeros.fill_(1 << (bits - 1))
        order = torch.randperm(INPUTS, generator=generator) // group_size
        self.group_of = order.int() if ordered else None

    def columns(self, start: int, stop: int) -> AffineColumns:
        return AffineColumns(*(values[:, start:stop] for values in (self.words, self.scales, self.zeros)))

    def weight(self) -> Tensor:
        """``[N, K]`` element by element: code i takes the bits from i * bits on of its column's words."""
        out = torch.empty(OUTPUTS, INPUTS)
        for n in range(OUTPUTS):
            stream = sum((int(word) & 0xFFFFFFFF) << 32 * place for place, word in enumerate(self.words[:, n]))
            for k in range(INPUTS):
                code = (stream >> self.bits * k) & ((1 << self.bits) - 1)
                group = k // self.group_size if self.group_of is None else int(self.group_of[k])
                out[n, k] = (code - int(self.zeros[group, n])) * self.scales[group, n].float()
        return out


def target() -> Target:
    return Target(torch.float32, CPU, Numerics())


def coded(bits: int, group_size: int, ordered: bool, symmetric: bool) -> tuple[BlockwiseLinear, Tensor]:
    part = Codes(bits, group_size, ordered, symmetric)
    shape = LinearShape("coded", INPUTS, OUTPUTS, bits, group_size, torch.float16, symmetric, ordered)
    layer = (Int8Linear if bits == 8 else CodedLinear)(shape, target(), CPU)
    layer.fill([part])
    return layer, part.weight()


class Table:
    """Random codes of a table (a TableWeights)."""

    def __init__(self, block: int, nested: Nested | None) -> None:
        generator = torch.Generator().manual_seed(block)
        self.out_features = OUTPUTS
        count = INPUTS * OUTPUTS
        blocks = -(-count // block)
        self.packed = torch.randint(0, 256, ((count + 1) // 2,), dtype=torch.uint8, generator=generator)
        self.table = torch.randn(16, generator=generator)
        self.absmax = torch.rand(blocks, generator=generator)
        self.nested_absmax: Tensor | None = None
        self.nested_table: Tensor | None = None
        whole = self.absmax
        if nested is not None:
            self.absmax = torch.randint(0, 256, (blocks,), dtype=torch.uint8, generator=generator)
            self.nested_absmax = torch.rand(-(-blocks // nested.size), generator=generator)
            self.nested_table = torch.randn(256, generator=generator)
            outer = self.nested_absmax[torch.arange(blocks) // nested.size]
            whole = self.nested_table[self.absmax.long()] * outer + nested.offset
        codes = torch.stack((self.packed >> 4, self.packed & 15), 1).flatten()[:count].long()
        self.weight = (self.table[codes] * whole[torch.arange(count) // block]).view(OUTPUTS, INPUTS)


def table(block: int, nested: Nested | None) -> tuple[BlockwiseLinear, Tensor]:
    part = Table(block, nested)
    layer = TableLinear(LinearShape("table4", INPUTS, OUTPUTS, group=block, nested=nested), target(), CPU)
    layer.fill([part])
    return layer, part.weight


def rows() -> tuple[BlockwiseLinear, Tensor]:
    class Part:
        out_features = OUTPUTS
        codes = torch.randint(-127, 128, (OUTPUTS, INPUTS), dtype=torch.int8)
        largest = torch.rand(OUTPUTS)

    shape = LinearShape("int8 rows", INPUTS, OUTPUTS, 8, INPUTS, symmetric=True)
    layer = Int8RowsLinear(shape, target(), CPU)
    layer.fill([Part()])
    return layer, Part.codes.float() * Part.largest[:, None] * (1 / 127)


LAYERS: dict[str, Callable[[], tuple[BlockwiseLinear, Tensor]]] = {
    **{
        f"int{bits} {group} {ordered} {symmetric}": lambda b=bits, g=group, o=ordered, s=symmetric: coded(b, g, o, s)
        for bits in (2, 3, 5, 8)
        for group, ordered, symmetric in ((32, False, False), (32, True, True), (64, False, True), (96, False, False))
    },
    "table 64": lambda: table(64, None),
    "table 4096": lambda: table(4096, None),
    "table 256, nested": lambda: table(256, Nested(4, 0.25)),
    "rows": rows,
}


@pytest.mark.parametrize("step", [1, 7, 64])
@pytest.mark.parametrize("name", LAYERS)
def test_weights_are_those_of_the_definition(name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are dequantised at a time, wherever blocks end."""
    monkeypatch.setattr(BlockwiseLinear, "block_weights", step * INPUTS)
    layer, expected = LAYERS[name]()
    assert torch.equal(layer.dequantised(torch.float32), expected)
    assert torch.equal(layer.dequantised(torch.bfloat16), expected.bfloat16())
    layer.bias = torch.randn(OUTPUTS)
    x = torch.randn(5, INPUTS)
    wanted = x @ expected.t() + layer.bias
    close = {"rtol": 1e-5, "atol": 1e-5 * float(wanted.abs().max())}
    torch.testing.assert_close(layer(x), wanted, **close)
    torch.testing.assert_close(layer.forward_float32(x), wanted, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LAYERS)
def test_rows_do_not_know_their_neighbours(name: str, dtype: torch.dtype) -> None:
    layer, _ = LAYERS[name]()
    layer.numerics.batch_invariant = True
    x = torch.randn(19, INPUTS).to(dtype)
    together = layer(x)
    for start, stop in ((0, 1), (3, 12), (18, 19)):
        assert torch.equal(layer(x[start:stop]), together[start:stop])


def test_what_says_nothing_is_not_held() -> None:
    """Zero-points in the middle are dropped: what is left is the codes and the scales."""
    scales = 2 * OUTPUTS * (INPUTS // 32)
    symmetric, _ = coded(3, 32, False, True)
    assert symmetric.storage_size() == 4 * OUTPUTS * word_count(INPUTS, 3) + scales
    asymmetric, _ = coded(3, 32, False, False)
    assert asymmetric.storage_size() == symmetric.storage_size() + scales // 2
    ordered, _ = coded(8, 32, True, True)
    assert ordered.storage_size() == OUTPUTS * INPUTS + scales + 4 * INPUTS
    nested, _ = table(64, Nested(256, 0.0))
    assert nested.storage_size() == OUTPUTS * INPUTS // 2 + 64 + 60 + 4 + 1024


def test_three_bits_cross_words() -> None:
    """AutoGPTQ's three words of 32 codes are one stream: codes 10 and 21 lie in two words."""
    codes = [place % 8 for place in range(32)]
    stream = sum(code << 3 * place for place, code in enumerate(codes))
    parts = torch.tensor([(stream >> 32 * place) & 0xFFFFFFFF for place in range(3)])
    assert unpack(parts.to(torch.int32)[:, None], 3, 32)[:, 0].tolist() == codes

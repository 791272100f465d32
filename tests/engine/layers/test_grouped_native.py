"""Native products with table codes and 8-bit codes against their references, their choice, and what declines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.checkpoints.quantised.layouts import CodedLayout, Layout, RowsLayout, TableLayout
from engine.layers.linear.affine import AffineColumns
from engine.layers.linear.base import Linear, Nested, Target
from engine.layers.linear.coded import unpack
from engine.layers.linear.native.grouped import FEW_ROWS, NativeGroupedLinear
from engine.layers.linear.native.lanes import BLOCK, put
from engine.layers.numerics import Numerics
from engine.native import library
from tests.engine.instruction_sets import each_kernel

CPU = torch.device("cpu")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
FP4 = (0.0, 0.0052, 0.6667, 1.0, 0.3333, 0.5, 0.1667, 0.25, -0.0, -0.0052, -0.6667, -1.0, -0.3333, -0.5, -0.1667, -0.25)

found = library.find()
runs = pytest.mark.skipif(found.library is None, reason=found.reason)


class TablePart:
    """Random codes of a table (a TableWeights)."""

    def __init__(self, out_features: int, in_features: int, block: int, nested: Nested | None, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        blocks = out_features * in_features // block
        self.out_features = out_features
        shape = (out_features * in_features // 2,)
        self.packed = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        self.table = torch.tensor(FP4)
        self.absmax = torch.rand(blocks, generator=generator)
        self.nested_absmax: Tensor | None = None
        self.nested_table: Tensor | None = None
        if nested is not None:
            self.absmax = torch.randint(0, 256, (blocks,), dtype=torch.uint8, generator=generator)
            self.nested_absmax = torch.rand(-(-blocks // nested.size), generator=generator)
            self.nested_table = torch.randn(256, generator=generator)


class CodedPart:
    """Random 8-bit codes in groups (a CodedWeights)."""

    bits = 8

    def __init__(
        self, out_features: int, in_features: int, group: int, zeros: bool, order: bool, scales: torch.dtype = FP16
    ) -> None:
        generator = torch.Generator().manual_seed(in_features)
        self.in_features, self.out_features, self.group_size = in_features, out_features, group
        shape = (in_features // 4, out_features)
        self._words = torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int32, generator=generator)
        groups = in_features // group
        self._scales = torch.rand(groups, out_features, generator=generator).to(scales)
        self._zeros = torch.full((groups, out_features), 128, dtype=torch.uint8)
        if zeros:
            self._zeros.random_(0, 256, generator=generator)
        shuffled = torch.randperm(in_features, generator=torch.Generator().manual_seed(7)) // group
        self.group_of = shuffled.int() if order else None

    def columns(self, start: int, stop: int) -> AffineColumns:
        return AffineColumns(*(values[:, start:stop] for values in (self._words, self._scales, self._zeros)))


class RowsPart:
    """LLM.int8 (an Int8Rows)."""

    def __init__(self, out_features: int, in_features: int) -> None:
        generator = torch.Generator().manual_seed(out_features)
        self.out_features = out_features
        self.codes = torch.randint(-128, 128, (out_features, in_features), dtype=torch.int8, generator=generator)
        self.largest = torch.rand(out_features, generator=generator)


Case = tuple[Layout, list[Any]]


def table(out_features: int, in_features: int, block: int, nested: Nested | None = None) -> Case:
    part = TablePart(out_features, in_features, block, nested)
    return TableLayout(in_features, block, FP4, nested, "" if nested is None else "alone"), [part]


def coded(
    out_features: int, in_features: int, group: int, zeros: bool, order: bool = False, scales: torch.dtype = FP16
) -> Case:
    part = CodedPart(out_features, in_features, group, zeros, order, scales)
    return CodedLayout(in_features, 8, group, scales, not zeros, order), [part]


CASES: dict[str, Callable[[], Case]] = {
    "table, one feature": lambda: table(1, 32, 32),
    "table, odd features": lambda: table(77, 192, 64),
    "table, long blocks": lambda: table(130, 4096, 4096),
    "table, fused": lambda: (table(40, 128, 64)[0], [TablePart(n, 128, 64, None, n) for n in (40, 100, 7)]),
    "table, nested": lambda: table(65, 320, 64, Nested(7, 0.25)),
    "table, nested in one": lambda: table(64, 256, 32, Nested(4096, -0.01)),
    "rows": lambda: (RowsLayout(100), [RowsPart(77, 100)]),
    "rows, fused": lambda: (RowsLayout(896), [RowsPart(n, 896) for n in (70, 3, 64)]),
    "groups": lambda: coded(77, 96, 32, zeros=False),
    "groups, zeros": lambda: coded(77, 96, 32, zeros=True),
    "groups, zeros, long": lambda: coded(128, 1024, 1024, zeros=True, scales=FP32),
    "groups, bfloat16": lambda: coded(64, 128, 4, zeros=True, scales=BF16),
    "groups, ordered": lambda: coded(77, 256, 32, zeros=False, order=True),
    "groups, ordered, zeros": lambda: coded(77, 256, 64, zeros=True, order=True),
    "groups, ordered, one feature": lambda: coded(1, 64, 16, zeros=True, order=True),
    "groups, ordered, one feature more than fit at once": lambda: coded(1025, 64, 16, zeros=False, order=True),
}


def needs(dtype: torch.dtype) -> None:
    """Skip where this processor cannot run the product for ``dtype``."""
    reason = library.declines(dtype, CPU)
    if reason:
        pytest.skip(reason)


def build(case: Case, dtype: torch.dtype, native: bool = True, numerics: Numerics | None = None) -> Linear:
    layout, parts = case
    count = sum(part.out_features for part in parts)
    bias = torch.randn(count, generator=torch.Generator().manual_seed(1)).to(dtype)
    layer = layout.built(parts, bias, Target(dtype, CPU, numerics or Numerics(), native))
    assert isinstance(layer, NativeGroupedLinear) == native
    assert layer.declined == []
    return layer


@pytest.fixture(params=[1, 2])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@each_kernel
@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("name", CASES)
def test_weights_and_products_are_the_references(name: str, kernel: torch.dtype) -> None:
    """Weights to the bit; products to the rounding of sums, and beyond the few rows of bfloat16 weights."""
    dtype = kernel
    layer, reference = build(CASES[name](), dtype), build(CASES[name](), dtype, native=False)
    weight = reference.dequantised(FP32)
    assert torch.equal(layer.dequantised(FP32), weight)
    assert torch.equal(layer.dequantised(BF16), weight.to(BF16))
    for rows in (*range(1, 11), FEW_ROWS[dtype], FEW_ROWS[dtype] + 1, 70):
        x = torch.randn(rows, layer.in_features).to(dtype)
        exact = x.double() @ weight.double().t() + layer.bias.double()
        # Zero-points are taken away from sums in which codes count for up to 128 more than themselves.
        zeros = weight.abs().max() if getattr(layer, "zeros", None) is not None else 0.0
        steps = x.double().abs() @ (weight.double().abs() + zeros).t() * 2**-20 + 1e-6
        in_float = layer.forward_float32(x)
        assert in_float.dtype == FP32
        assert bool(((in_float.double() - exact).abs() <= steps).all())
        if dtype == BF16:
            steps = steps + exact.abs() * 2**-8
        if dtype == BF16 and rows > FEW_ROWS[dtype]:
            steps = steps + x.double().abs() @ weight.double().abs().t() * 2**-8 + layer.bias.abs() * 2**-7
        assert bool(((layer(x).double() - exact).abs() <= steps).all()), rows


@each_kernel
@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("case", [lambda: table(600, 512, 64), lambda: coded(600, 512, 64, zeros=True, order=True)])
def test_rows_keep_their_bits(case: Callable[[], Case], kernel: torch.dtype) -> None:
    """A row alone and in batches of up to 70 at every kind of place; the layer is large enough for both threads."""
    layer = build(case(), kernel, numerics=Numerics(batch_invariant=True))
    row = torch.randn(1, 512).to(kernel)
    others = (torch.randn(70, 512) * 10 ** torch.randn(70, 1)).to(kernel)
    for forward in (layer.forward, layer.forward_float32):
        alone = forward(row)[0]
        for count in (*range(2, 20), 33, 70):
            for place in {0, count // 2, count - 1}:
                batch = others[:count].clone()
                batch[place] = row[0]
                assert torch.equal(forward(batch)[place], alone), (count, place)


@each_kernel
def test_every_code_and_not_a_number(kernel: torch.dtype) -> None:
    part = TablePart(16, 32, 32, None)
    part.packed = torch.arange(256, dtype=torch.uint8)
    rows = RowsPart(2, 256)
    rows.codes = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8).expand(2, 256).contiguous()
    for case in ((TableLayout(32, 32, FP4, None, ""), [part]), (RowsLayout(256), [rows])):
        layer = build(case, kernel)
        assert torch.equal(layer.dequantised(FP32), build(case, kernel, native=False).dequantised(FP32))
        x = torch.randn(2, layer.in_features).to(kernel)
        x[0, 3] = torch.nan
        result = layer(x)
        assert bool(result[0].isnan().all())
        assert bool(result[1].isfinite().all())


@runs
@pytest.mark.parametrize("name", CASES)
def test_planned_layers_are_the_real_ones(name: str) -> None:
    needs(FP32)
    layout, parts = CASES[name]()
    real = build((layout, parts), FP32)
    planned = layout.planned(real.out_features, real.bias, Target(FP32, CPU, Numerics()))
    assert (planned.kind, planned.path, planned.declined) == (real.kind, real.path, real.declined)
    assert planned.storage_size() == real.storage_size()


@each_kernel
@pytest.mark.usefixtures("_threads", "kernel")
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("columns", [1, 63, 64, 130])
def test_codes_in_another_order(bits: int, columns: int) -> None:
    """Whatever lies between the rows, beside them or is turned round."""
    native = library.find().library
    assert native is not None
    words = torch.randint(-(1 << 31), 1 << 31, (12, columns + 9), dtype=torch.int32)
    order = torch.randperm(12 * 32 // bits).int()
    turned = words[:, 4 : 4 + columns].t().contiguous().t()
    for view in (words[:, 4 : 4 + columns], words[:, 4 : 4 + columns].contiguous(), turned):
        result = native.reordered(view, order, bits)
        assert torch.equal(unpack(result, bits, len(order)), unpack(view, bits, len(order))[order])


def reason(case: Case, dtype: torch.dtype = FP32) -> str:
    layer = case[0].built(case[1], None, Target(dtype, CPU, Numerics()))
    assert layer.path == "dequantise and multiply"
    (declined,) = layer.declined
    assert declined.path.startswith("native ")
    return declined.reason


def test_it_declines_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not whole blocks of 64" in reason(table(64, 96, 64))
    assert "no groups of 24 over 64" in reason(CASES_DECLINED["last group is shorter"]())
    assert "not of 32 input features each" in reason(CASES_DECLINED["uneven order"]())
    assert "float16" in reason(table(64, 64, 64), FP16)
    monkeypatch.setattr(library, "find", lambda: library.LibraryLookup(None, "it is gone"))
    for case in (table(64, 64, 64), coded(64, 64, 32, zeros=True), (RowsLayout(64), [RowsPart(64, 64)])):
        assert reason(case) == "it is gone"


def _uneven() -> Case:
    layout, (part,) = coded(64, 64, 32, zeros=True, order=True)
    part.group_of = (torch.arange(64) % 3 == 0).int()
    return layout, [part]


def _short() -> Case:
    part = CodedPart(64, 64, 16, zeros=True, order=False)
    part.group_size = 24
    part._scales, part._zeros = part._scales[:3], part._zeros[:3]
    return CodedLayout(64, 8, 24, FP16, False), [part]


CASES_DECLINED: dict[str, Callable[[], Case]] = {"uneven order": _uneven, "last group is shorter": _short}


def test_lanes_take_features_from_any_place_on() -> None:
    values = torch.randn(3, 300)
    packed = torch.zeros(5, 3, BLOCK)
    start = 0
    for count in (40, 10, 64, 0, 150, 36):
        put(values[:, start : start + count], packed, start)
        start += count
    assert torch.equal(packed.transpose(0, 1).reshape(3, -1)[:, :300], values)
    assert not bool(packed[4, :, 44:].any())

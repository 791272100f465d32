"""Kvasir's native products of every packing: against the definition, whoever else is in the batch, what declines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.compute.layers.activation import Gated
from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import LinearShape, PackedLinear, Surroundings, Target
from engine.compute.layers.linear.blockwise import BlockwiseLinear
from engine.compute.layers.linear.ggml import GgmlEmbedding, GgmlWeights
from engine.compute.layers.linear.ggml_blocks import BLOCKS, IQ2_XS, IQ4_NL, Q4_K, Q6_K, TQ1_0
from engine.compute.layers.linear.native import BLOCK, PATH, UNIT, NativeLinear, NativeTableLinear, put
from engine.compute.layers.numerics import Numerics
from engine.compute.native import library
from engine.compute.native.instructions import VARIABLE
from engine.formats.quantised.layouts import CodedLayout
from tests.engine.compute.layers.affine_support import Affine
from tests.engine.compute.layers.ggml_support import rows_of
from tests.engine.compute.layers.packed_parts import (
    CASES,
    Packed,
    coded,
    definition,
    ggml,
    int4,
    int8_rows,
    table,
    table_part,
)
from tests.engine.compute.native.instruction_sets import at_hand, each_kernel
from tests.kit.pairs import pairs

CPU = torch.device("cpu")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

runs = pytest.mark.skipif(library.find().library is None, reason=library.find().reason)
each_case = pytest.mark.parametrize("name", CASES)
each_width = pytest.mark.parametrize("activations", [8, 16, 32])
"""Bits of quantised activations."""


def build(packed: Packed, dtype: torch.dtype, activations: int = 32, bias: Tensor | None = None) -> NativeLinear:
    numerics = Numerics(quantises=True)
    numerics.activations = activations
    layer = choose.built(*packed, bias, Target(dtype, CPU, numerics))
    assert isinstance(layer, NativeLinear)
    assert (layer.path, layer.declined) == (PATH, [])
    return layer


def quantised(x: Tensor, activations: int) -> Tensor:
    """What the digits of ``x [T, K]`` say, float64: see products.h."""
    spans = x.float().unflatten(-1, (-1, UNIT))
    largest = spans.abs().amax(-1, keepdim=True)
    scale, left = (
        largest.double() / 127,
        spans * torch.where(largest > 2**-120, torch.full_like(largest, 127) / largest, 0),
    )
    total = torch.zeros_like(spans, dtype=torch.float64)
    for _ in range({8: 1, 16: 2, 32: 3}[activations]):
        total += left.round().double() * scale
        left, scale = (left - left.round()) * 254, scale / 254
    return total.flatten(-2)


def met(layer: NativeLinear, packed: Packed, weight: Tensor) -> Tensor:
    """The weights that digits meet: the definition's, but a table of fractions is rounded for a single digit."""
    if not isinstance(layer, NativeTableLinear) or layer.numerics.activations > 8:
        return weight
    shape, parts = packed
    rounded = [part._replace(table=(part.table.double() * 127).round().div(127).float()) for part in parts]
    return definition((shape, rounded))


@pytest.fixture
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@each_kernel
@each_case
def test_weights_are_those_of_the_definition(name: str, kernel: torch.dtype) -> None:
    packed = CASES[name]()
    layer, weight = build(packed, kernel), definition(packed)
    assert torch.equal(layer.dequantised(FP32), weight)
    assert torch.equal(layer.dequantised(BF16), weight.to(BF16))
    assert torch.equal(layer.dequantised(FP16), weight.to(FP16))
    if layer.order is None:
        some = torch.tensor([layer.out_features - 1, 0, layer.out_features // 2, 0])
        assert torch.equal(layer.rows(some, BF16), weight[some].to(BF16))


@each_kernel
@each_case
@each_width
def test_products_are_those_of_the_digits(name: str, activations: int, kernel: torch.dtype) -> None:
    """Only the sums' own rounding is allowed: weights are never rounded, but for a table that meets one digit."""
    packed = CASES[name]()
    weight = definition(packed)
    bias = torch.randn(weight.shape[0]).to(kernel)
    layer = build(packed, kernel, activations, bias)
    weights = met(layer, packed, weight).double()
    # Of codes that count for more than their weights, with zero-points or minima, the sizes are summed apart.
    apart = weight.abs().max().double()
    for rows in (1, 2, 3, 4, 7, 9, 30):
        x = (torch.randn(rows, layer.in_features) * 10 ** torch.randn(rows, 1)).to(kernel)
        held = x.double() if activations == 32 else quantised(layer.ordered(x), activations)
        exact = held @ (weights if activations == 32 or layer.order is None else weights[:, layer.order.long()]).t()
        exact += bias.double()
        allowed = held.abs() @ (weights.abs() + apart).t() * 2**-20 + 1e-5
        found = layer.forward_float32(x)
        assert found.dtype == FP32
        assert bool(((found.double() - exact).abs() <= allowed).all()), rows
        found = layer(x)
        assert found.dtype == kernel
        rounding = 2**-8 * ((exact - bias).abs() + exact.abs()) if kernel == BF16 else 0.0
        assert bool(((found.double() - exact).abs() <= allowed + rounding).all()), rows


@each_kernel
@each_case
def test_refined_spans_have_16_bits_and_the_others_8(name: str, kernel: torch.dtype) -> None:
    packed = CASES[name]()
    layer = build(packed, kernel, 8)
    weights = met(layer, packed, definition(packed)).double()
    weights = weights if layer.order is None else weights[:, layer.order.long()]
    layer.numerics.refines = True
    layer.refined = (torch.rand(layer.in_features // UNIT) < 0.4).to(torch.uint8)
    layer.refined[0] = 1
    for rows in (9, 30):
        x = torch.randn(rows, layer.in_features).to(kernel)
        spans = [quantised(layer.ordered(x), bits).unflatten(-1, (-1, UNIT)) for bits in (16, 8)]
        held = torch.where(layer.refined[:, None] > 0, *spans).flatten(-2)
        exact, apart = held @ weights.t(), weights.abs().max()
        allowed = held.abs() @ (weights.abs() + apart).t() * 2**-20 + 1e-5
        found = layer.forward_float32(x)
        assert bool(((found.double() - exact).abs() <= allowed).all()), rows
        assert torch.equal(layer.forward_float32(x[-9:])[-1], found[-1]), "whoever else is in the batch"
        layer.numerics.batch_invariant = True
        alone, together = layer.forward_float32(x[-1:])[0], layer.forward_float32(x)[-1]
        layer.numerics.batch_invariant = False
        layer.numerics.activations = 16
        assert torch.equal(alone, together)
        assert torch.equal(alone, layer.forward_float32(x[-1:])[0])
        layer.numerics.activations = 8
        assert torch.equal(alone, layer.forward_float32(x[-1:])[0]), "a few rows have 16 bits throughout"
    layer.refined.zero_()
    refined = layer(x)
    layer.numerics.refines = False
    assert torch.equal(refined, layer(x))


@pytest.mark.usefixtures("_threads")
@pairs(
    packed={
        "int4": lambda: int4(Affine(128, 512, 64, 11), Affine(128, 512, 64, 11)),
        "coded": lambda: coded(8, 384, 256, 64, order=True),
        "table": lambda: table(256, 512, 64),
        "Q6_K": lambda: ggml(Q6_K, 256, 512),
    },
    activations=[8, 16, 32],
    gating=["silu", "gelu_tanh"],
    refines=[False, True],
    dtype=[FP32, BF16],
    _threads=[1, 2],
    kernel=at_hand(),
    indirect=["_threads", "kernel"],
)
def test_gates_with_the_product_are_those_after_it(
    packed: Callable[[], Packed], activations: int, gating: str, refines: bool, dtype: torch.dtype, kernel: torch.dtype
) -> None:
    """Bit for bit, in panels of every kind."""
    layer, numerics = build(packed(), dtype, activations), Numerics()
    layer.numerics.refines = refines
    layer.refined = (torch.rand(layer.in_features // UNIT) < 0.4).to(torch.uint8)
    for rows in (9, 33, 300):
        x = torch.randn(rows, layer.in_features).to(dtype)
        found = layer.forward_within(x, Surroundings(gating=gating))
        assert found is not None
        assert torch.equal(found, Gated(gating, numerics)(layer(x))), rows


def test_gates_after_products_of_other_kinds() -> None:
    even, odd, biased = (int4(Affine(256, 128, 32)), int4(Affine(192, 128, 32)), int4(Affine(256, 128, 32)))
    many, few, around = torch.randn(9, 128), torch.randn(8, 128), Surroundings(gating="silu")
    layer = build(even, FP32)
    assert layer.declines_within(many, around) is None
    reasons = [
        layer.declines_within(few, around),
        layer.declines_within(many, Surroundings(gating="gelu")),
        layer.declines_within(many, Surroundings(gating="clamped")),
        layer.declines_within(many, Surroundings(torch.ones(128), gating="silu")),
        build(odd, FP32).declines_within(many, around),
        build(biased, FP32, bias=torch.ones(256)).declines_within(many, around),
    ]
    assert all(reasons)
    assert layer.forward_within(few, around) is None


@each_kernel
def test_no_rows_are_no_work(kernel: torch.dtype) -> None:
    layer = build(int4(Affine(64, 128, 32, 11)), kernel)
    assert layer(torch.empty(0, 128, dtype=kernel)).shape == (0, 64)


@pytest.mark.usefixtures("_threads")
@pairs(
    packed={
        "int4": lambda: int4(Affine(600, 512, 64, 11)),
        "coded": lambda: coded(8, 600, 512, 64, order=True),
        "table": lambda: table(600, 512, 64),
        "Q4_K": lambda: ggml(Q4_K, 600, 512),
        "Q6_K": lambda: ggml(Q6_K, 600, 512),
        "IQ4_NL": lambda: ggml(IQ4_NL, 600, 512),
        "IQ2_XS": lambda: ggml(IQ2_XS, 600, 512),
        "TQ1_0": lambda: ggml(TQ1_0, 600, 512),
    },
    activations=[8, 16, 32],
    _threads=[1, 2],
    kernel=at_hand(),
    indirect=["_threads", "kernel"],
)
def test_rows_keep_their_bits(packed: Callable[[], Packed], activations: int, kernel: torch.dtype) -> None:
    """A row alone and in batches at every kind of place; the layer is large enough for both threads."""
    layer = build(packed(), kernel, activations)
    row = torch.randn(1, 512).to(kernel)
    others = (torch.randn(300, 512) * 10 ** torch.randn(300, 1)).to(kernel)
    for forward in (layer.forward, layer.forward_float32):
        alone = forward(row)[0]
        for count in (*range(2, 12), 33, 85, 300):
            for place in {0, count // 2, count - 1}:
                batch = others[:count].clone()
                batch[place] = row[0]
                assert torch.equal(forward(batch)[place], alone), (count, place)


@runs
@each_width
@pytest.mark.parametrize(
    "name", ["int4, fused", "int3", "table, odd features", "rows", "Q4_K", "Q6_K", "IQ1_M", "IQ3_S", "TQ1_0"]
)
def test_every_set_of_instructions_gives_the_same(name: str, activations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the order of multiplying and adding in one rounding, where a set has that."""
    packed = CASES[name]()
    x = torch.randn(5, packed[0].in_features)
    found = []
    for each in at_hand():
        monkeypatch.setenv(VARIABLE, each)
        found.append(build(packed, FP32, activations)(x))
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=1e-5, atol=1e-4)


@each_kernel
@pytest.mark.parametrize("values", [0.0, 1e-42, 2.0**-130, 1e30, 1e37])
@each_width
def test_activations_of_any_size(values: float, activations: int, kernel: torch.dtype) -> None:
    """Zeros stay zeros; what is too small for an inverse counts as zero; none overflows before its product does."""
    packed = int4(Affine(64, 64, 32))
    layer = build(packed, kernel, activations)
    x = torch.full((2, 64), values).to(kernel)
    x[0, ::2] *= -1
    exact = x.double() @ definition(packed).double().t()
    found = layer.forward_float32(x).double()
    allowed = x.double().abs().sum(-1, keepdim=True) * 0.5 * (2**-18 if activations > 8 else 2**-7) + 64 * 2**-120
    assert bool(((found - exact).abs() <= allowed).all())


@each_kernel
@each_width
@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
def test_not_a_number_stays_in_its_row(odd: float, activations: int, kernel: torch.dtype) -> None:
    for packed in (ggml(Q4_K, 32, 512), int8_rows(256, 20), table(16, 64, 32), int4(Affine(40, 64, 32))):
        layer = build(packed, kernel, activations)
        x = torch.randn(12, layer.in_features).to(kernel)
        x[2, 3] = odd
        found = layer(x)
        assert not bool(found[2].isfinite().any())
        assert bool(found[[0, 1, *range(3, 12)]].isfinite().all())


@each_kernel
def test_every_code(kernel: torch.dtype) -> None:
    part = Affine(64, 32, 16, 3)
    part.codes = torch.arange(64, dtype=torch.uint8).remainder(16)[None].expand(32, 64).contiguous()
    part.zeros = torch.arange(16, dtype=torch.uint8).repeat_interleave(4)[None].expand(2, 64).contiguous()
    bytes_ = table_part(16, 32, 32)._replace(packed=torch.arange(256, dtype=torch.uint8))
    rows = int8_rows(256, 2)
    rows[1][0] = rows[1][0]._replace(codes=torch.arange(-128, 128).to(torch.int8).expand(2, 256).contiguous())
    for packed in (int4(part), (table(16, 32, 32)[0], [bytes_]), rows):
        layer, weight = build(packed, kernel), definition(packed)
        assert torch.equal(layer.dequantised(FP32), weight)
        ones = torch.eye(layer.in_features).to(kernel)
        torch.testing.assert_close(layer.forward_float32(ones), weight.t(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [None, 0.01])
@pytest.mark.parametrize("type", BLOCKS, ids=lambda type: BLOCKS[type].name)
@each_kernel
def test_ggml_scales_of_every_size(type: int, scale: float | None, kernel: torch.dtype) -> None:
    packed = ggml(type, 33, 512, scale)
    # Only MXFP4 reaches the subnormal numbers, which some processors' rounding takes for zero.
    weight = definition(packed)
    found = build(packed, kernel).dequantised(BF16)
    near = weight.abs() < 2**-126
    assert torch.equal(found.where(~near, torch.tensor(0.0, dtype=BF16)), weight.where(~near, 0).to(BF16))


@runs
def test_it_holds_no_more_than_the_file() -> None:
    """Of whole blocks of 64 output features; six-bit scales take a byte."""
    for type, block in BLOCKS.items():
        shape, parts = ggml(type, 128, 512)
        assert build((shape, parts), FP32).storage_size() <= parts[0].data.numel() * 1.04, block.name


def why_not(shape: LinearShape, dtype: torch.dtype = FP32, device: torch.device = CPU) -> str:
    declined = {each.path: each.reason for each in choose.choose(shape, Target(dtype, device, Numerics())).declined}
    return declined[PATH]


@runs
def test_it_declines_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    even = int4(Affine(64, 64, 32))[0]
    assert "float16" in why_not(even, FP16)
    assert "not on a CPU" in str(library.declines(BF16, torch.device("cuda")))
    assert "groups of 8 over 64" in why_not(int4(Affine(64, 64, 8))[0])
    assert "40 input features are not a multiple of 32" in why_not(int4(Affine(64, 40, 8))[0])
    assert "scales are float32" not in PATH
    assert "groups of 16 are not a multiple of 32" in why_not(coded(5, 64, 64, 16)[0])
    assert "7 bits" in why_not(coded(7, 64, 64, 32)[0])
    _, (part,) = coded(8, 64, 64, 32, order=True)
    part.group_of = (torch.arange(64) % 3 == 0).int()
    uneven = CodedLayout(64, 8, 32, FP16, False, True).surveyed([part])
    assert "no even groups" in why_not(uneven)
    monkeypatch.setattr(library, "find", lambda: library.LibraryLookup(None, "it is gone"))
    for packed in (table(64, 64, 64), coded(8, 64, 64, 32), int8_rows(64, 64), ggml(Q4_K, 64, 256), (even, [])):
        assert why_not(packed[0]) == "it is gone"


@runs
def test_it_can_be_switched_off() -> None:
    packed: tuple[LinearShape, list[Any]] = ggml(Q4_K, 64, 256)
    layer = choose.built(*packed, None, Target(FP32, CPU, Numerics(), native=False))
    assert isinstance(layer, BlockwiseLinear)
    assert layer.declined == []


@each_kernel
def test_a_tied_head_and_its_table_are_one(kernel: torch.dtype) -> None:
    part = GgmlWeights(Q6_K, rows_of(Q6_K, 150, 256, 1, 0.01), 256)
    embedding = GgmlEmbedding(part, kernel, CPU)
    head: PackedLinear = choose.tied_head(embedding, Target(kernel, CPU, Numerics()))
    assert embedding.storage_size() == 0
    assert head.storage_size() > 0
    weight = definition((LinearShape("ggml", 256, 150, block_type=Q6_K), [part]))
    tokens = torch.tensor([3, 149, 0, 3, 64, 63])
    assert torch.equal(embedding.forward(tokens), weight[tokens].to(kernel))
    assert embedding.forward(tokens[:0]).shape == (0, 256)


def test_lanes_take_features_from_any_place_on() -> None:
    values = torch.randn(3, 300)
    packed = torch.zeros(5, 3, BLOCK)
    start = 0
    for count in (40, 10, 64, 0, 150, 36):
        put(values[:, start : start + count], packed, start)
        start += count
    assert torch.equal(packed.transpose(0, 1).reshape(3, -1)[:, :300], values)
    assert not bool(packed[4, :, 44:].any())

"""Linear layers: packed layouts and every path against the definition, and rows that do not know their neighbours."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.compute.layers.linear import affine, choose, int4
from engine.compute.layers.linear.affine import chunks, dequantise, pack_codes, unpack_words
from engine.compute.layers.linear.base import Target
from engine.compute.layers.linear.blocks import (
    BLOCK,
    IDENTITY,
    natural,
    operator_columns,
    pack_words,
    stored,
    unpack_blocks,
)
from engine.compute.layers.linear.dense import Concatenated, Dense
from engine.compute.layers.numerics import Numerics
from engine.formats.quantised.layouts import AffineLayout
from tests.contracts.linear_kind import LinearKindContract
from tests.engine.compute.layers.affine_support import Affine, words
from tests.engine.compute.layers.packed_parts import cases

CPU = torch.device("cpu")


def build(parts: list[Affine], dtype: torch.dtype, bias: Tensor | None = None, invariant: bool = False):
    """A layer on torch's own operators; the native one has its own tests."""
    return choose.built(affine.surveyed(parts), parts, bias, Target(dtype, CPU, Numerics(invariant), native=False))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("columns", [IDENTITY, tuple(reversed(IDENTITY)), tuple((i * 17) % 64 for i in range(64))])
def test_packing_and_unpacking_are_inverse(columns: tuple[int, ...]) -> None:
    codes = torch.randint(0, 16, (24, 10 * BLOCK), dtype=torch.uint8)
    packed = pack_words(words(codes), columns)
    assert packed.shape == (10, 24, 32)
    assert int(packed[3, 5, 7] & 15) == int(codes[5, 3 * BLOCK + columns[7]])
    assert int(packed[3, 5, 7] >> 4) == int(codes[5, 3 * BLOCK + columns[39]])
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.empty(24, 10 * BLOCK, dtype=dtype)
        unpack_blocks(packed, 8, out)
        assert torch.equal(natural(out, columns), codes.to(dtype) - 8)
        assert torch.equal(stored(codes.to(dtype) - 8, columns), out)


OPERATOR, DEQUANTISED = "torch int4 matmul on CPU", "dequantise and multiply"
PATHS = [DEQUANTISED] if operator_columns() is None else [OPERATOR, DEQUANTISED]
"""The ways that a layer in bfloat16 can compute here; the second one wherever the operator's layout is another."""


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == DEQUANTISED:
        monkeypatch.setattr(int4, "operator_columns", lambda: None)
    return request.param


def test_the_probed_layout_is_the_operators() -> None:
    """Where no order of 64 features is the operator's, layers do without it and say why."""
    codes = torch.randint(0, 16, (192, 96), dtype=torch.int32)
    theirs = torch._convert_weight_to_int4pack_for_cpu(codes, 1).flatten()
    columns = operator_columns()
    if columns is not None:
        assert torch.equal(theirs, pack_words(words(codes.t().contiguous()), columns).flatten())
    layer = build([Affine(64, 64, 32)], torch.bfloat16)
    assert layer.path == PATHS[0]
    assert [tuple(declined) for declined in layer.declined] == (
        [(OPERATOR, "its packed layout on this processor is not known")] if columns is None else []
    )


class TestInt4(LinearKindContract):
    cases = cases("int4")


def test_chunks_cross_the_borders_of_parts() -> None:
    parts = [Affine(40, 32, 32, 1), Affine(72, 32, 32, 2), Affine(8, 32, 32, 3)]
    whole = words(torch.cat([part.codes for part in parts], 1))
    seen = [(start, columns.words) for start, columns in chunks(parts, 48)]
    assert [start for start, _ in seen] == [0, 48, 96]
    assert torch.equal(torch.cat([found for _, found in seen], 1), whole)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("outputs", "inputs", "group"), [(96, 64, 32), (64, 256, 128), (200, 48, 16), (8, 40, 8)])
def test_float32_weights_are_exactly_those_of_the_definition(
    outputs: int, inputs: int, group: int, symmetric: bool, order: bool
) -> None:
    part = Affine(outputs, inputs, group, 4, symmetric, order)
    expected = part.weight()
    assert torch.equal(dequantise(part.columns(0, outputs), group, part.order).t(), expected)
    written = torch.empty(outputs, inputs)
    AffineLayout(inputs, group, torch.float16, symmetric).write(part, written)
    assert torch.equal(written, expected)
    layer = build([part], torch.float32)
    assert layer.path == "dequantise and multiply"
    assert "bfloat16" in layer.declined[0].reason
    assert torch.equal(layer.dequantised(torch.float32), expected)
    x = torch.randn(37, inputs)
    torch.testing.assert_close(layer(x), x @ expected.t(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.forward_float32(x), x @ expected.t(), rtol=1e-5, atol=1e-5)


def test_scales_kept_in_float32_stay_exact() -> None:
    part = Affine(64, 64, 32, 5)
    part.scales = torch.rand(2, 64) * 0.02
    assert torch.equal(build([part], torch.float32).dequantised(torch.float32), part.weight())


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("rows", [1, 3, int4.FEW_ROWS, int4.FEW_ROWS + 1, 70])
def test_bfloat16_paths_follow_the_definition(rows: int, symmetric: bool, order: bool, path: str) -> None:
    """Few rows through torch's operator, many through dequantisation: within bfloat16 rounding of the exact sum."""
    parts = [Affine(96, 256, 64, seed, symmetric) for seed in (6, 7)]
    if order:
        parts[0].order = parts[1].order = torch.randperm(256, generator=torch.Generator().manual_seed(1))
    bias = torch.randn(192).bfloat16()
    layer = build(parts, torch.bfloat16, bias)
    assert layer.path == path
    assert layer.out_features == 192
    x = torch.randn(rows, 256).bfloat16()
    weight = torch.cat([part.weight() for part in parts])
    expected = x.float() @ weight.t() + bias.float()
    # Scales and products are each off by at most 2^-9 of themselves, zero-points of up to 8 steps (of 0.025) likewise.
    allowed = x.float().abs() @ (weight.abs() + 8 * 0.025).t() * 2**-8 + expected.abs() * 2**-8
    assert bool(((layer(x).float() - expected).abs() <= allowed).all())
    error = (layer.forward_float32(x) - expected).abs()
    assert bool((error <= allowed).all())


def test_both_bfloat16_paths_have_the_same_symmetric_weights(path: str) -> None:
    part = Affine(128, 128, 32, 8, symmetric=True)
    layer = build([part], torch.bfloat16)
    multiplied = torch.cat([layer(rows) for rows in torch.eye(128).bfloat16().split(16)])
    assert torch.equal(multiplied, (part.codes.bfloat16() - 8) * part.scales.bfloat16().repeat_interleave(32, 0))
    if path == OPERATOR:
        assert torch.equal(layer.dequantised(torch.bfloat16), multiplied.t())
    else:  # the scales as in the file are kept, and rounded where they meet the codes
        assert torch.equal(layer.dequantised(torch.float32), part.weight())


def test_words_are_packed_codes() -> None:
    codes = torch.randint(0, 16, (64, 40), dtype=torch.uint8)
    order = torch.randperm(64)
    assert torch.equal(pack_codes(codes), words(codes))
    assert torch.equal(pack_codes(unpack_words(words(codes), order)), words(codes[order]))


def test_packed_layers_take_about_four_bits(path: str) -> None:
    """A group of 128 has 32 bits more for the operator, scale and zero-point in bfloat16; else 24."""
    layer = build([Affine(256, 1024, 128, 10)], torch.bfloat16)
    assert layer.storage_size() * 8 / (256 * 1024) == {OPERATOR: 4.25, DEQUANTISED: 4.1875}[path]


def test_dense_and_concatenated() -> None:
    weight, bias = torch.randn(24, 16), torch.randn(24)
    dense = Dense(weight, bias, Numerics())
    x = torch.randn(5, 16)
    expected = x @ weight.t() + bias
    torch.testing.assert_close(dense(x), expected)
    torch.testing.assert_close(dense.forward_float32(x), expected)
    both = Concatenated([dense, Dense(weight[:8], None, Numerics())])
    assert both.out_features == 32
    torch.testing.assert_close(both(x), torch.cat((expected, x @ weight[:8].t()), 1))
    assert both.storage_size() == (24 * 16 + 24 + 8 * 16) * 4


BF16, FP32 = torch.bfloat16, torch.float32
INVARIANT = {
    "int4 operator": lambda: build([Affine(192, 256, 64, 11)], BF16, torch.randn(192).to(BF16), True),
    "int4 operator, act-order": lambda: build([Affine(64, 512, 128, 12, order=True)], BF16, None, True),
    "int4 dequantised": lambda: build([Affine(136, 200, 8, 13)], BF16, None, True),
    "int4 float32": lambda: build([Affine(136, 256, 32, 14)], FP32, None, True),
    "dense float32": lambda: Dense(torch.randn(136, 100), torch.randn(136), Numerics(True)),
    "dense bfloat16": lambda: Dense(torch.randn(1000, 256).to(BF16), None, Numerics(True)),
    "wide": lambda: Dense(torch.randn(300, 3000), None, Numerics(True)),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", INVARIANT)
def test_batch_invariant_rows_keep_their_bits(name: str, threads: int) -> None:
    """A row alone, and in batches of 2 to 33 at every position, among neighbours of every size."""
    torch.set_num_threads(threads)
    torch.manual_seed(len(name))
    layer = INVARIANT[name]()
    dtype = FP32 if name in ("int4 float32", "dense float32", "wide") else BF16
    row = torch.randn(1, layer.in_features).to(dtype)
    others = (torch.randn(33, layer.in_features) * 10 ** torch.randn(33, 1)).to(dtype)
    for forward in (layer.forward, layer.forward_float32):
        alone = forward(row)[0]
        for count in range(2, 34) if threads == 1 else (2, 8, 9, 33):
            for place in range(count) if count in (9, 33) else (0, count // 2, count - 1):
                batch = others[:count].clone()
                batch[place] = row[0]
                assert torch.equal(forward(batch)[place], alone), (count, place)

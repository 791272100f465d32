"""Layers and token tables over ggml's blocks: every path against the definition, sizes, bits that rows keep."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.compute.layers.linear import choose, ggml
from engine.compute.layers.linear.base import Linear, Target
from engine.compute.layers.linear.dense import Concatenated
from engine.compute.layers.linear.ggml import GgmlEmbedding, GgmlLinear, GgmlWeights
from engine.compute.layers.linear.ggml_blocks import BLOCKS, IQ4_NL, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0, dequantise
from engine.compute.layers.linear.int4 import Int4Linear
from engine.compute.layers.linear.native import NativeInt4Linear
from engine.compute.layers.numerics import Numerics
from engine.formats.quantised.layouts import ggml_layer
from tests.contracts.linear_kind import LinearKindContract
from tests.engine.compute.layers.ggml_support import rows_of
from tests.engine.compute.layers.packed_parts import cases
from tests.kit.pairs import pairs

CPU, META = torch.device("cpu"), torch.device("meta")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

every_type = pytest.mark.parametrize("type", BLOCKS, ids=lambda type: BLOCKS[type].name)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(type: int, outputs: int, inputs: int, seed: int = 0) -> GgmlWeights:
    return GgmlWeights(type, rows_of(type, outputs, inputs, seed, 0.01), inputs)


def definition(*parts: GgmlWeights) -> Tensor:
    return torch.cat([dequantise(part.type, part.data) for part in parts])


def build(parts: list[GgmlWeights], dtype: torch.dtype, bias: Tensor | None = None, native: bool = False):
    return ggml_layer(parts, bias, Target(dtype, CPU, Numerics(), native))


def plan(parts: list[GgmlWeights], dtype: torch.dtype, bias: Tensor, native: bool) -> Linear:
    on_meta = [part._replace(data=part.data.to(META)) for part in parts]
    return ggml_layer(on_meta, bias.to(META), Target(dtype, CPU, Numerics(), native), planning=True)


def close(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, rounding: float) -> bool:
    """Within ``rounding`` of every product, and of the result; and the rounding of float32 sums."""
    exact = x.double() @ weight.double().t()
    exact = exact if bias is None else exact + bias.double()
    # Offsets of K-quants (up to 63 x 0.01) are summed apart from the codes: their sizes count, not their difference.
    allowed = x.double().abs() @ (weight.double().abs() + 0.64).t() * (rounding + 2**-20) + exact.abs() * rounding
    return bool(((found.double() - exact).abs() <= allowed).all())


class TestBlocks(LinearKindContract):
    cases = cases(*(block.name for block in BLOCKS.values()))


def test_q4_0_becomes_int4_without_loss() -> None:
    """Scales of every sign and size, and codes that are all 0 or all 15."""
    parts = [GgmlWeights(Q4_0, rows_of(Q4_0, rows, 96, rows), 96) for rows in (40, 25)]
    parts[0].data.view(40, 3, 18)[0, :, 2:] = 0
    parts[0].data.view(40, 3, 18)[1, :, 2:] = 255
    for use_native in (False, True):
        layer = build(parts, FP32, native=use_native)
        assert isinstance(layer, Int4Linear | NativeInt4Linear)
        assert layer.kind == "int4"
        assert torch.equal(layer.dequantised(FP32), definition(*parts))
        planned = choose.planned(ggml.shape(Q4_0, 96, 65), None, Target(FP32, CPU, Numerics(), use_native))
        assert planned.storage_size() == layer.storage_size()
        assert planned.path == layer.path


def test_parts_of_several_types_stand_side_by_side() -> None:
    parts = [weights(Q4_K, 16, 256, 1), weights(Q4_K, 8, 256, 2), weights(Q6_K, 8, 256, 3), weights(Q4_0, 64, 256, 4)]
    bias = torch.randn(96)
    layer = build(parts, FP32, bias)
    assert isinstance(layer, Concatenated)
    assert [part.out_features for part in layer.parts] == [24, 8, 64]
    x = torch.randn(5, 256)
    assert close(layer(x), x, definition(*parts), bias, 0.0)
    assert torch.equal(layer.dequantised(FP32), definition(*parts))
    planned = plan(parts, FP32, bias, False)
    assert planned.storage_size() == layer.storage_size()


def test_dense_copies_are_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ggml, "BLOCK_WEIGHTS", 1000)
    part = weights(Q4_1, 11, 320)
    out = torch.empty(11, 320, dtype=BF16)
    ggml.write_dense(part, out)
    assert torch.equal(out, definition(part).to(BF16))


@every_type
@pytest.mark.parametrize("dtype", [FP32, BF16, FP16])
def test_the_table_looks_up_rows(type: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ggml, "BLOCK_WEIGHTS", 4 * 256)
    part = weights(type, 50, 256)
    table = GgmlEmbedding(part, dtype, CPU)
    assert table.data.data_ptr() != part.data.data_ptr()
    tokens = torch.tensor([3, 49, 0, 3, 17, 17, 8, 9, 10])
    found = table.forward(tokens)
    assert found.dtype == dtype
    assert torch.equal(found, definition(part)[tokens].to(dtype))
    assert table.forward(tokens[:0]).shape == (0, 256)
    assert table.storage_size() == part.data.numel()
    head = choose.tied_head(table, Target(dtype, CPU, Numerics(), native=False))
    assert isinstance(head, GgmlLinear)
    assert head.data is table.data
    x = torch.randn(3, 256).to(dtype)
    assert close(head.forward_float32(x), x, definition(part), None, 0.0)


@pairs(
    type={BLOCKS[type].name: type for type in (Q4_K, Q6_K, Q8_0, IQ4_NL, Q4_0)},
    dtype=[FP32, BF16, FP16],
    threads=[1, 2],
    use_native=[False, True],
)
def test_batch_invariant_rows_keep_their_bits(type: int, dtype: torch.dtype, threads: int, use_native: bool) -> None:
    """A row alone and in batches of 2 to 33 at every position; the layer is large enough for both threads."""
    torch.set_num_threads(threads)
    torch.manual_seed(type)
    parts = [weights(type, 555, 512, 11)]
    layer = ggml_layer(parts, torch.randn(555).to(dtype), Target(dtype, CPU, Numerics(True), use_native))
    row = torch.randn(1, 512).to(dtype)
    others = (torch.randn(70, 512) * 10 ** torch.randn(70, 1)).to(dtype)
    for forward in (layer.forward, layer.forward_float32):
        alone = forward(row)[0]
        for count in (*range(2, 12), 33, 70) if threads == 1 else (2, 8, 9, 33):
            for place in range(count) if count == 9 else (0, count // 2, count - 1):
                batch = others[:count].clone()
                batch[place] = row[0]
                assert torch.equal(forward(batch)[place], alone), (count, place)

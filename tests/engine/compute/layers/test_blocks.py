"""Norm, rotation, activation and embedding: against plain formulas, and row by row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.rotation import rotate
from engine.compute.batch import SequenceRows
from engine.compute.layers.activation import FUNCTIONS, Activation
from engine.compute.layers.embedding import Embedding
from engine.compute.layers.layer_norm import LayerNorm
from engine.compute.layers.longrope import LongRotaryEmbedding
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.rotary import RotaryEmbedding, inverse_frequencies
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from engine.config.positions import RopeConfig

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7, 96), (5, 6, 32)])
def test_norm_follows_its_formula(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape).to(dtype)
    weight = torch.rand(shape[1:]).to(dtype)
    exact = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    found = RMSNorm(weight, 1e-5, Numerics()).forward(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=1e-5 if dtype == torch.float32 else 2**-7, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_follows_its_formula(dtype: torch.dtype) -> None:
    x = (3 + torch.randn(7, 96)).to(dtype)
    weight, bias = torch.rand(96).to(dtype), torch.randn(96).to(dtype)
    centred = x.double() - x.double().mean(-1, keepdim=True)
    exact = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double() + bias.double()
    norm = LayerNorm(weight, bias, 1e-5, Numerics())
    found = norm.forward(x)
    assert found.dtype == dtype
    assert norm.storage_size() == 2 * 96 * dtype.itemsize
    rtol, atol = (1e-5, 1e-5) if dtype == torch.float32 else (2**-7, 2e-2)
    torch.testing.assert_close(found.double(), exact, rtol=rtol, atol=atol)


def test_a_float32_weight_multiplies_before_the_result_is_rounded() -> None:
    torch.manual_seed(48)
    x, weight = torch.randn(50, 64).bfloat16(), 1 + 0.01 * torch.randn(64)
    exact = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    half_a_place = 2.0 ** (exact.abs().log2().floor() - 8)  # with a little of float32's own rounding at a tie

    def rounded_once(found: Tensor) -> bool:
        return bool(((found.double() - exact).abs() <= half_a_place * 1.001).all())

    assert rounded_once(RMSNorm(weight, 1e-6, Numerics()).forward(x))
    assert not rounded_once((exact / weight.double()).bfloat16() * weight.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [48, 64, 100, 2048])
def test_batch_invariant_norm_and_activation_keep_their_bits(size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    invariant, weight = Numerics(True), torch.rand(size)
    norms = [
        RMSNorm(weight.to(dtype), 1e-6, invariant),
        RMSNorm(weight, 1e-6, invariant),
        LayerNorm(weight.to(dtype), torch.rand(size).to(dtype), 1e-5, invariant),
    ]
    x = torch.randn(33, size).to(dtype)
    for function in (*(norm.forward for norm in norms), *(Activation(kind, invariant) for kind in FUNCTIONS)):
        alone = [function(x[i : i + 1])[0] for i in range(33)]
        for count in range(2, 34):
            batch = function(x[:count])
            assert all(torch.equal(batch[i], alone[i]) for i in range(count))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2])
def test_rotation_keeps_each_rows_bits(threads: int, dtype: torch.dtype) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rope = RotaryEmbedding(RopeConfig(1e4), 40, 4096, dtype, CPU)
        positions = torch.randint(0, 4096, (600,))
        x = torch.randn(600, 5, 40).to(dtype)
        together = rotate(x, rope.at(positions, 4096))
        for i in (0, 1, 7, 299, 598, 599):
            assert torch.equal(rotate(x[i : i + 1], rope.at(positions[i : i + 1], 4096))[0], together[i])
    finally:
        torch.set_num_threads(before)


def test_rotation_turns_pairs_by_position_times_frequency() -> None:
    rope = RotaryEmbedding(RopeConfig(10000.0), 8, 64, torch.float32, CPU)
    x = torch.randn(3, 2, 8)
    positions = torch.tensor([0, 5, 63])
    found = rotate(x, rope.at(positions, 64))
    for t, position in enumerate(positions.tolist()):
        for pair in range(4):
            angle = position * 10000.0 ** (-2 * pair / 8)
            turned = torch.complex(x[t, :, pair], x[t, :, pair + 4]) * complex(math.cos(angle), math.sin(angle))
            torch.testing.assert_close(found[t, :, pair], turned.real, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(found[t, :, pair + 4], turned.imag, rtol=1e-5, atol=1e-5)


def test_the_table_grows_without_changing() -> None:
    rope = RotaryEmbedding(RopeConfig(10000.0), 64, 9000, torch.float32, CPU)
    positions = torch.arange(0, 2048, 13)
    before = rope.at(positions, 2048)
    small = rope.storage_size()
    after = rope.at(positions, 8000)
    assert rope.storage_size() > small
    assert torch.equal(before.cos, after.cos)
    assert torch.equal(before.sin, after.sin)
    assert rope.at(torch.tensor([8999]), 9000).cos.shape == (1, 1, 64)


def test_a_partial_rotation_leaves_the_rest_of_each_head() -> None:
    rope = RotaryEmbedding(RopeConfig(10000.0, partial=0.75), 16, 64, torch.float32, CPU)
    whole = RotaryEmbedding(RopeConfig(10000.0), 12, 64, torch.float32, CPU)
    x, positions = torch.randn(5, 3, 16), torch.arange(5)
    found = rotate(x, rope.at(positions, 5))
    assert torch.equal(found[..., :12], rotate(x[..., :12], whole.at(positions, 5)))
    assert torch.equal(found[..., 12:], x[..., 12:])


class _OneGroup:
    num_groups = 1


def test_longrope_chooses_by_sequence() -> None:
    """Three sequences in one step: at the original context, beyond it, and within it; and rows that are padding."""
    config = RopeConfig(10000.0, "longrope", 4.0, 20, factors=(1.0, 2.0), long_factors=(3.0, 5.0))
    rope = LongRotaryEmbedding(config, 4, 64, torch.float32, CPU)
    assert rope.short.scale == rope.long.scale == math.sqrt(1 + math.log(4) / math.log(20))
    rows = [SequenceRows([1] * 3, 17, [1, 2]), SequenceRows([1] * 2, 19, [3, 4]), SequenceRows([1], 0, [5])]
    store = DenseKVStore([(1, 1)], 1, torch.float32)
    batch = Runner(_OneGroup(), store, None, policy=powers_of_two).batch(rows)  # type: ignore[arg-type]
    assert batch.tokens.shape[0] > 6
    found = rope.step(batch)
    short, long = (table.at(batch.positions, 64) for table in (rope.short, rope.long))
    for row in range(6):
        expected = long if row in (3, 4) else short
        assert torch.equal(found.cos[row], expected.cos[row])
        assert torch.equal(found.sin[row], expected.sin[row])


def test_linear_scaling_is_a_slower_clock() -> None:
    plain, _ = inverse_frequencies(RopeConfig(10000.0), 64)
    slow, scale = inverse_frequencies(RopeConfig(10000.0, "linear", 4.0), 64)
    assert torch.equal(slow * 4, plain)
    assert scale == 1.0


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_extensions_keep_high_frequencies_and_slow_low_ones(kind: str) -> None:
    config = RopeConfig(500000.0, kind, 8.0, original_max_position=8192)
    plain, _ = inverse_frequencies(RopeConfig(500000.0), 128)
    found, scale = inverse_frequencies(config, 128)
    assert torch.allclose(found[:8], plain[:8])
    assert torch.allclose(found[-8:], plain[-8:] / 8)
    assert bool((found[1:] < found[:-1]).all())
    assert scale == (1.0 if kind == "llama3" else pytest.approx(0.1 * math.log(8) + 1))


def test_embedding_looks_up_rows() -> None:
    table = torch.randn(10, 4)
    assert torch.equal(Embedding(table).forward(torch.tensor([3, 3, 9])), table[[3, 3, 9]])

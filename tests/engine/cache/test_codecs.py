"""Packed keys and values: what comes back is near what went in, the bytes are those of the definition, and its own."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.stores.codecs import (
    from_float8,
    from_planes,
    pack_absmax,
    pack_along_channels,
    pack_along_tokens,
    to_float8,
    to_planes,
    unpack_absmax,
    unpack_along_channels,
    unpack_along_tokens,
)
from engine.cache.stores.packed import BYTE_KINDS, value_group
from tests.kit.examples import examples

DTYPES = [torch.float32, torch.bfloat16]
WIDTHS = [64, 80, 96, 128, 192, 256]
SMALLEST = 2.0**-24  # of float16: what a scale or a minimum may be off besides its relative rounding


def numbers(seed: int, tokens: int, heads: int, width: int, spread: float = 1.0, shift: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return shift + spread * torch.randn(tokens, heads, width, generator=generator)


def rounding(x: Tensor) -> Tensor:
    """How far float16 may be from x."""
    return x.abs() * 2.0**-11 + SMALLEST


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("width", [8, *WIDTHS])
def test_planes_come_back_and_lie_as_written_down(bits: int, width: int) -> None:
    codes = torch.randint(0, 1 << bits, (7, 3, width), generator=torch.Generator().manual_seed(width)).to(torch.uint8)
    packed = to_planes(codes, bits)
    assert packed.shape == (7, 3, width * bits // 8)
    assert torch.equal(from_planes(packed, bits), codes)
    plane = width * bits // 8  # channels of a plane: as many as there are bytes
    for byte in (0, plane - 1):
        expected = sum(int(codes[2, 1, p * plane + byte]) << p * bits for p in range(8 // bits))
        assert int(packed[2, 1, byte]) == expected


def kivi(x: np.ndarray, bits: int, axis: int) -> np.ndarray:
    """The formula of the paper in plain NumPy: round((x - min) / s) s + min with s = (max - min) / (2^b - 1)."""
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    scale = ((high - low) / np.float32(2**bits - 1)).astype(np.float16).astype(np.float32)
    low = low.astype(np.float16).astype(np.float32)
    safe = np.where(scale == 0, np.float32(1), scale)
    return np.clip(np.rint((x - low) / safe), 0, 2**bits - 1) * scale + low


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_formula_of_the_paper(bits: int, width: int) -> None:
    x = numbers(width, 96, 2, width, 3.0, -0.7)
    keys = unpack_along_tokens(*pack_along_tokens(x, bits), bits, torch.float32)
    assert np.array_equal(keys.numpy(), kivi(x.numpy().reshape(3, 32, 2, width), bits, 1).reshape(x.shape))
    values = unpack_along_channels(*pack_along_channels(x, bits), bits, torch.float32)
    grouped = x.numpy().reshape(96, 2, -1, value_group(width))
    assert np.array_equal(values.numpy(), kivi(grouped, bits, 3).reshape(x.shape))


def test_int8_against_bitsandbytes() -> None:
    functional = pytest.importorskip("bitsandbytes").functional
    x = numbers(0, 50, 1, 128, 2.0).half()
    codes, largest, _ = functional.int8_vectorwise_quant(x[:, 0])
    packed = pack_absmax(x, "int8")
    assert torch.allclose(packed.meta[:, 0].float() * 127, largest, rtol=1e-3)
    apart = (packed.codes[:, 0].int() - codes.int()).abs()
    assert int(apart.max()) <= 1, "their scale is not rounded to 16 bits"
    assert float(apart.float().mean()) < 0.02


def test_floats_of_8_bits_are_those_of_pytorch() -> None:
    codes = torch.arange(-128, 128).to(torch.int8)
    codes = codes[codes & 127 != 127]  # all but the two that are not numbers
    every = codes.view(torch.float8_e4m3fn).float()
    assert torch.equal(from_float8(codes), every)
    assert torch.equal(to_float8(every)[every != 0], codes[every != 0])
    ordered = every.sort().values
    between = (ordered[1:] + ordered[:-1]) / 2
    tiny = torch.tensor([2.0**-30, 1e-40, 0.0])
    x = torch.cat((between, between.nextafter(ordered[1:]), between.nextafter(ordered[:-1]), tiny, -tiny))
    x = torch.cat((x, numbers(0, 1000, 1, 8, 10.0).flatten(), numbers(1, 1000, 1, 8, 0.01).flatten()))
    assert torch.equal(from_float8(to_float8(x)), x.to(torch.float8_e4m3fn).float())


@examples(60)
@given(st.integers(0, 99), st.integers(1, 40), st.floats(1e-4, 300.0), st.floats(-200.0, 200.0))
def test_fp8_is_within_a_sixteenth(seed: int, tokens: int, spread: float, shift: float) -> None:
    """And within half of its smallest step, of which the largest number of a head has 448 * 512."""
    x = numbers(seed, tokens, 2, 64, spread, shift)
    packed = pack_absmax(x, "fp8")
    back = unpack_absmax(*packed, "fp8", torch.float32)
    scale = packed.meta.float().unsqueeze(-1)
    bound = torch.maximum(x.abs() / 16, scale * 2**-10) + 448 * rounding(x.abs().amax(-1, keepdim=True) / 448)
    assert bool(((back - x).abs() <= bound * (1 + 1e-5)).all())


shapes = st.tuples(st.integers(1, 40), st.integers(1, 3), st.sampled_from([8, 24, 64, 80, 96, 128]))
spreads = st.floats(1e-4, 300.0)
shifts = st.floats(-200.0, 200.0)


@examples(60)
@given(st.integers(0, 99), shapes, spreads, shifts)
def test_int8_is_within_half_a_scale(seed: int, shape: tuple[int, int, int], spread: float, shift: float) -> None:
    x = numbers(seed, *shape, spread, shift)
    packed = pack_absmax(x, "int8")
    back = unpack_absmax(*packed, "int8", torch.float32)
    scale = packed.meta.float().unsqueeze(-1)
    bound = torch.maximum(scale / 2, 127 * rounding(x.abs().amax(-1, keepdim=True) / 127))
    assert bool(((back - x).abs() <= bound * (1 + 1e-5) + x.abs() * 1e-6).all())


@examples(60)
@given(st.integers(0, 99), shapes, spreads, shifts, st.sampled_from([2, 4]), st.booleans())
def test_groups_are_within_half_a_scale(
    seed: int, shape: tuple[int, int, int], spread: float, shift: float, bits: int, along_tokens: bool
) -> None:
    groups, heads, width = shape
    tokens = -(-groups // 16) * 32 if along_tokens else groups
    x = numbers(seed, tokens, heads, width, spread, shift)
    if along_tokens:
        back = unpack_along_tokens(*pack_along_tokens(x, bits), bits, torch.float32)
        shape, axis = (-1, 32, heads, width), 1
    else:
        back = unpack_along_channels(*pack_along_channels(x, bits), bits, torch.float32)
        shape, axis = (tokens, heads, -1, value_group(width)), -1
    parts, error = x.view(shape), (back - x).abs().view(shape)
    low, high = parts.amin(axis, keepdim=True), parts.amax(axis, keepdim=True)
    top = 2**bits - 1
    scale = (high - low) / top
    ends = rounding(low) + top * rounding(scale)  # what float16 moves the ends of the range by
    bound = (scale + rounding(scale)) / 2 + ends
    assert bool((error <= bound * (1 + 1e-5) + parts.abs() * 1e-6).all())


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-7, 6e4, 1e6])
def test_equal_numbers_are_safe(value: float) -> None:
    x = torch.full((32, 2, 64), value)
    near = min(value, 65504.0)
    for back in (
        unpack_absmax(*pack_absmax(x, "int8"), "int8", torch.float32),
        unpack_absmax(*pack_absmax(x, "fp8"), "fp8", torch.float32),
        unpack_along_channels(*pack_along_channels(x, 4), 4, torch.float32),
        unpack_along_tokens(*pack_along_tokens(x, 2), 2, torch.float32),
    ):
        assert bool(torch.isfinite(back).all())
        expected = torch.full_like(x, value if back.max() > near else near)
        torch.testing.assert_close(back, expected, rtol=2**-10, atol=127 * SMALLEST)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_packing_what_was_unpacked_gives_the_same_numbers(dtype: torch.dtype) -> None:
    """Within float32 exactly: each group's ends are among its codes. 16-bit results round once more, at the end."""
    x = numbers(3, 64, 2, 64).to(dtype)
    once = unpack_along_channels(*pack_along_channels(x, 4), 4, torch.float32)
    twice = unpack_along_channels(*pack_along_channels(once, 4), 4, torch.float32)
    torch.testing.assert_close(twice, once, rtol=0, atol=4e-3)
    assert unpack_along_channels(*pack_along_channels(x, 4), 4, dtype).dtype == dtype
    assert torch.equal(unpack_along_channels(*pack_along_channels(x, 4), 4, dtype), once.to(dtype))


@examples(40)
@given(st.integers(0, 99), st.integers(1, 60), st.sampled_from(WIDTHS), st.sampled_from(DTYPES))
def test_a_token_gives_the_same_bytes_in_any_company(seed: int, tokens: int, width: int, dtype: torch.dtype) -> None:
    x = numbers(seed, tokens, 2, width).to(dtype)
    at = seed % tokens
    by_bytes = [functools.partial(pack_absmax, kind=kind) for kind in BYTE_KINDS]
    by_groups = [functools.partial(pack_along_channels, bits=bits) for bits in (4, 2)]
    for pack in (*by_bytes, *by_groups):
        among, alone = pack(x), pack(x[at : at + 1])
        assert torch.equal(among.codes[at], alone.codes[0])
        assert torch.equal(among.meta[at], alone.meta[0])
    groups = numbers(seed, 32 * (1 + tokens % 5), 2, width).to(dtype)
    among, alone = pack_along_tokens(groups, 2), pack_along_tokens(groups[-32:], 2)
    assert torch.equal(among.codes[-32:], alone.codes)
    assert torch.equal(among.meta[-2:], alone.meta)


def kl(q: Tensor, k: Tensor, packed: Tensor) -> float:
    """Mean divergence of the attention over packed keys from that over the keys, nats."""
    exact, near = ((q @ part.T * q.shape[1] ** -0.5).log_softmax(-1) for part in (k, packed))
    return float((exact.exp() * (exact - near)).sum(-1).mean())


def test_keys_with_outlying_channels_want_scales_along_tokens() -> None:
    """Three channels of large numbers, as real keys have: they widen every token's range, but only their own channel's.

    With as many bits the divergence is several times smaller; with half of them it is smaller still.
    """
    generator = torch.Generator().manual_seed(5)
    k = torch.randn(512, 64, generator=generator)
    k[:, [3, 17, 40]] = k[:, [3, 17, 40]] * 2 + torch.tensor([25.0, -20.0, 15.0])
    q = torch.randn(64, 64, generator=generator)
    keys = k[:, None]
    along_tokens = {b: unpack_along_tokens(*pack_along_tokens(keys, b), b, torch.float32)[:, 0] for b in (2, 4)}
    along_channels = {b: unpack_along_channels(*pack_along_channels(keys, b), b, torch.float32)[:, 0] for b in (2, 4)}
    found = {b: (kl(q, k, along_tokens[b]), kl(q, k, along_channels[b])) for b in (2, 4)}
    for bits in (2, 4):
        assert found[bits][0] < found[bits][1] / 3, f"{bits} bits: {found[bits]}"
    assert found[4][0] < 0.005

"""The noise is a pure function of its key, uniform, and independent along every axis of the key."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.compute.sampling import noise

CPU = torch.device("cpu")


def uniforms(draws: list[tuple[int, int, int]], vocabulary: int) -> np.ndarray:
    words = noise.bits(noise.keys(draws, CPU), None, vocabulary).numpy().astype(np.int64)
    return (words + 2**31 + 0.5) / 2**32


def chi_square(values: np.ndarray, bins: int) -> float:
    counts = np.bincount((values.ravel() * bins).astype(int), minlength=bins)
    expected = values.size / bins
    return float(((counts - expected) ** 2 / expected).sum())


def test_bits_do_not_depend_on_the_batch_or_on_which_tokens_are_asked_for() -> None:
    draws = [(seed, answer, index) for seed in (0, 1, -5, 2**63) for answer in (0, 3) for index in (1, 900)]
    together = noise.bits(noise.keys(draws, CPU), None, 1000)
    some = torch.tensor([[7, 999, 0, 512]]).expand(len(draws), -1)
    assert torch.equal(noise.bits(noise.keys(draws, CPU), some, 1000), together[:, [7, 999, 0, 512]])
    for row, draw in enumerate(draws):
        assert torch.equal(noise.bits(noise.keys([draw], CPU), None, 1000)[0], together[row])
    assert len({tuple(row) for row in together.tolist()}) == len(draws)


def test_bits_are_these_forever() -> None:
    """Text saved with its seed can be had again: these values are part of the format."""
    words = noise.bits(noise.keys([(1, 0, 5), (1, 1, 5)], CPU), None, 4)
    state = noise.key(1, 0, 5)
    assert words.shape == (2, 4)
    assert words[0].tolist() == [reference(state, token) for token in range(4)]


def reference(key: tuple[int, int], token: int) -> int:
    """The same arithmetic in plain Python integers modulo 2^32."""
    h = mix(mix(token) ^ (key[0] & 0xFFFFFFFF), 0x9E3779B1, key[1] & 0xFFFFFFFF)
    return h - 2**32 if h >= 2**31 else h


def mix(h: int, factor: int = 0, term: int = 0) -> int:
    h &= 0xFFFFFFFF
    if factor:
        h = (h * factor + term) & 0xFFFFFFFF
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ (h >> 16)


@pytest.mark.parametrize("axis", ["token", "index", "seed", "answer"])
def test_uniform_along_every_axis(axis: str) -> None:
    many = 20_000
    draws = {
        "token": [(3, 0, 17)],
        "index": [(3, 0, i) for i in range(many)],
        "seed": [(i, 0, 17) for i in range(many)],
        "answer": [(3, i, 17) for i in range(many)],
    }[axis]
    values = uniforms(draws, many if axis == "token" else 8)
    series = values[0] if axis == "token" else values[:, 5]
    # 255 degrees of freedom: the mean is 255, five standard deviations are 113.
    assert chi_square(series, 256) < 368
    for lag in (1, 2, 3, 16):
        pairs = (series[:-lag] * 16).astype(int) * 16 + (series[lag:] * 16).astype(int)
        assert chi_square((pairs + 0.5) / 256, 256) < 368


def test_neighbouring_keys_are_uncorrelated_over_the_vocabulary() -> None:
    values = uniforms([(3, 0, 17), (3, 0, 18), (4, 0, 17), (3, 1, 17)], 50_000)
    correlation = np.corrcoef(values)
    assert np.abs(correlation - np.eye(4)).max() < 5 / np.sqrt(50_000)


def test_gumbel_has_its_moments_and_is_finite_at_the_ends() -> None:
    draws = noise.gumbel(noise.keys([(9, 0, i) for i in range(50)], CPU), None, 10_000)
    assert torch.isfinite(draws).all()
    assert abs(float(draws.mean()) - 0.5772) < 0.01
    assert abs(float(draws.var()) - np.pi**2 / 6) < 0.02
    ends = (torch.tensor([-(2.0**31), 2.0**31 - 1], dtype=torch.float64) + 2.0**31 + 0.5) * 2.0**-32
    assert torch.isfinite(-torch.log(-torch.log(ends))).all()

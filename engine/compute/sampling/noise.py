"""Gumbel noise that is a function of (seed, answer, index in the sequence, token id) and of nothing else (M5).

The same key gives the same bits on any device and in any batch, because everything up to the uniform number is 32-bit
integer arithmetic modulo 2^32; the two logarithms after it are taken in float64, where devices agree to about 1e-16.

A token's number is mixed once (murmur3's finaliser, a bijection of 32-bit integers), then keyed by 64 bits that
splitmix64's finaliser draws from (seed, answer, index), one half before a multiplication and one after it, and mixed
again.
Sources: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" for counter-based generation;
Appleby, MurmurHash3 (fmix32); Steele et al. 2014, "Fast splittable pseudorandom number generators" (splitmix64).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

TARGET = 0
"""Salt of the target's own draws. The others keep what the ratio test draws independent of each other."""
DRAFT = 1
"""Salt of the draft tokens that a proposer draws from its own distribution."""
TEST = 2
"""Salt of the uniform numbers that accept or reject a draft token."""
RESIDUAL = 3
"""Salt of the draw after rejected draft tokens."""
BONUS = 4
"""Salt of the draw after a fully accepted path."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _signed32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _splitmix(state: int) -> int:
    state = (state + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


@lru_cache(maxsize=1 << 10)
def _stream(seed: int, answer: int) -> int:
    return _splitmix(_splitmix(seed & _MASK) ^ (answer & _MASK))


# A place is asked for by the proposer, and again for every node of that depth.
@lru_cache(maxsize=1 << 12)
def key(seed: int, answer: int, index: int, salt: int = TARGET) -> tuple[int, int]:
    """Two signed 32-bit halves of the key of one draw; ``index`` is the place of the drawn token in its sequence.

    Streams of different ``salt`` are independent of each other.
    """
    state = _splitmix(_stream(seed, answer) ^ (index & _MASK))
    if salt:
        state = _splitmix(state ^ salt)
    return _signed32(state), _signed32(state >> 32)


def keys(draws: Sequence[tuple[int, int, int]], device: torch.device, salt: int = TARGET) -> Tensor:
    """Keys [R, 2] int32 of the draws (seed, answer, index)."""
    return torch.tensor([key(*draw, salt) for draw in draws], dtype=torch.int32, device=device)


def _mix_(h: Tensor) -> Tensor:
    """murmur3's 32-bit finaliser, in place; int32 shifts are arithmetic, so the sign bits are masked off."""
    h ^= (h >> 16) & 0xFFFF
    h *= _signed32(0x85EBCA6B)
    h ^= (h >> 13) & 0x7FFFF
    h *= _signed32(0xC2B2AE35)
    h ^= (h >> 16) & 0xFFFF
    return h


@lru_cache(maxsize=4)
def _mixed_vocabulary(size: int, device: torch.device) -> Tensor:
    return _mix_(torch.arange(size, dtype=torch.int32, device=device))


def bits(keys: Tensor, tokens: Tensor | None, vocabulary: int) -> Tensor:
    """Random 32-bit words [R, C] int32 for keys [R, 2] and token ids [R, C] (None: the whole vocabulary in order)."""
    base = _mixed_vocabulary(vocabulary, keys.device) if tokens is None else _mix_(tokens.to(torch.int32))
    h = base ^ keys[:, :1]
    h *= _signed32(0x9E3779B1)
    h += keys[:, 1:]
    return _mix_(h)


def uniform(keys: Tensor, tokens: Tensor | None, vocabulary: int) -> Tensor:
    """Uniform numbers [R, C] float64 of 32 bits, strictly between 0 and 1."""
    number = bits(keys, tokens, vocabulary).to(torch.float64)
    number += 2.0**31 + 0.5
    number *= 2.0**-32
    return number


def gumbel(keys: Tensor, tokens: Tensor | None, vocabulary: int) -> Tensor:
    """Standard Gumbel noise [R, C] float64."""
    return uniform(keys, tokens, vocabulary).log_().neg_().log_().neg_()

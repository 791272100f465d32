"""Packed keys and values written down after the docstring of `PackedKV`: random codes, and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.packed import PackedKV, value_group
from engine.compute.attention.interface import AttnSpec, KeyRange
from engine.compute.batch import Batch
from tests.engine.compute.attention.attention_cases import Case, place

KINDS = (("int8", 8, 8), ("fp8", 8, 8), ("int4", 4, 4), ("kivi", 4, 4), ("kivi", 2, 2), ("kivi", 4, 2), ("kivi", 2, 4))


def planes(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes [..., d] as bytes [..., d * bits / 8]: byte j holds channel j of every plane, the first one lowest."""
    if bits == 8:
        return codes.astype(np.int8)
    parts = np.split(codes.astype(np.uint8), 8 // bits, axis=-1)
    return sum(part << np.uint8(bits * p) for p, part in enumerate(parts))


def random_meta(rng: np.random.Generator, shape: Sequence[int], largest: float) -> np.ndarray:
    """Float16 of every size up to `largest`, subnormal ones and zeros among them."""
    return (largest * rng.random(shape) * 2.0 ** -rng.integers(0, 28, shape)).astype(np.float16)


class Side:
    """Random keys or values [slots, heads, width] with a scale for each token, or for groups of its channels."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int, int], bits: int, floats: bool = False) -> None:
        low, high = (-127, 128) if bits == 8 else (0, 2**bits)
        self.codes = rng.integers(low, high, shape)
        self.packed = torch.from_numpy(planes(self.codes, bits))
        largest = 4.0 / (high - 1)
        if floats:  # all but the two whose bits are no number's
            self.packed[self.packed & 127 == 127] = 0
            self.codes, largest = self.packed.view(torch.float8_e4m3fn).double().numpy(), 4.0 / 448
        if bits == 8:
            self.meta = random_meta(rng, shape[:2], largest)
            self.meta[::2] = (largest * rng.random(self.meta[::2].shape)).astype(np.float16)
            self.numbers = self.codes * self.meta[..., None].astype(np.float64)
        else:
            group = value_group(shape[2])
            scale = (largest * rng.random((*shape[:2], shape[2] // group))).astype(np.float16)
            scale[::3] = random_meta(rng, scale[::3].shape, largest)
            minimum = (2 * rng.standard_normal(scale.shape)).astype(np.float16)
            self.meta = np.stack((scale, minimum), axis=-1)
            wide = self.meta.astype(np.float64).repeat(group, axis=2)
            self.numbers = self.codes * wide[..., 0] + wide[..., 1]

    def forget(self, unused: np.ndarray) -> None:
        """Slots that hold no token get meta that would show."""
        self.meta[unused] = np.nan


class KeysByChannel:
    """Keys of kind "kivi": scales along 32 tokens for each channel; only whole groups of a sequence have any."""

    def __init__(
        self, rng: np.random.Generator, shape: tuple[int, int, int], bits: int, groups: Sequence[tuple[int, int]]
    ) -> None:
        self.codes = rng.integers(0, 2**bits, shape)
        self.packed = torch.from_numpy(planes(self.codes, bits))
        self.meta = np.full((shape[0] // 16, *shape[1:]), np.nan, dtype=np.float16)
        self.numbers = np.full(shape, np.nan)
        for even, odd in groups:
            scale = (random_meta(rng, shape[1:], 4.0 / (2**bits - 1)), rng.random(shape[1:]).astype(np.float16))[
                odd % 2
            ]
            minimum = (2 * rng.standard_normal(shape[1:])).astype(np.float16)
            self.meta[even], self.meta[odd] = scale, minimum
            for page in (even, odd):
                slots = slice(page * 16, page * 16 + 16)
                self.numbers[slots] = self.codes[slots] * scale.astype(np.float64) + minimum


def place_packed(
    cases: Sequence[Case], kind: str, k_bits: int, v_bits: int, seed: int | None
) -> tuple[Batch, Tensor, PackedKV]:
    """As `place`; the cases' keys and values become the numbers of random codes (NaN where a key has no scale yet)."""
    batch, q, dense = place(cases, seed)
    rng = np.random.default_rng(len(cases) if seed is None else seed)
    shape = tuple(dense.k.shape)
    pages = [np.asarray(batch.host.pages[0][s]) for s in range(len(cases))]
    index = [np.arange(case.length) for case in cases]
    slots = [own[i // 16] * 16 + i % 16 for own, i in zip(pages, index, strict=True)]
    v = Side(rng, shape, v_bits, kind == "fp8")
    k: Side | KeysByChannel
    if kind == "kivi":
        pairs = [
            (own[2 * g], own[2 * g + 1]) for own, c in zip(pages, cases, strict=True) for g in range(c.length // 32)
        ]
        k = KeysByChannel(rng, shape, k_bits, pairs)
    else:
        k = Side(rng, shape, k_bits, kind == "fp8")
    unused = np.setdiff1d(np.arange(shape[0]), np.concatenate(slots))
    for side in (k, v):
        if isinstance(side, Side):
            side.forget(unused)
    for case, own in zip(cases, slots, strict=True):
        case.k, case.v = torch.from_numpy(k.numbers[own]), torch.from_numpy(v.numbers[own])
    metas = (torch.from_numpy(k.meta), torch.from_numpy(v.meta))
    return batch, q, PackedKV(k.packed, v.packed, kind, *metas, k_bits, v_bits)


def expected_within(cases: Sequence[Case], spec: AttnSpec, keys: KeyRange) -> tuple[Tensor, Tensor]:
    """o and lse in float64 of the rows of all cases within their ranges; (0, -inf) for a row that sees no key."""
    outs, lses, at = [], [], 0
    for case in cases:
        mask, index = case.mask(spec.window), torch.arange(case.length)
        for row in range(case.rows):
            seen = mask[row]
            if keys.first is not None:
                seen = seen & (index >= int(keys.first[at + row]))
            if keys.stop is not None:
                seen = seen & (index < int(keys.stop[at + row]))
            repeat = case.q.shape[1] // case.k.shape[1]
            k, v = (part[seen].double().repeat_interleave(repeat, 1) for part in (case.k, case.v))
            scores = torch.einsum("hd,nhd->hn", case.q[row].double(), k) * spec.scale
            if spec.softcap is not None:
                scores = spec.softcap * torch.tanh(scores / spec.softcap)
            lses.append(scores.logsumexp(-1))
            outs.append(torch.einsum("hn,nhd->hd", scores.softmax(-1) if len(k) else scores, v))
        at += case.rows
    return torch.stack(outs), torch.stack(lses)

"""The packed kinds written down a second time, in numpy, after the docstring of `PackedKV`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.cache.stores.packed import BYTE_KINDS, PackedKV
from engine.compute.batch import Batch
from tests.engine.compute.attention.attention_cases import Case

Array = NDArray[np.generic]
KINDS = {"int8": (8, 8), "fp8": (8, 8), "int4": (4, 4), "kivi 4": (4, 4), "kivi 2": (2, 2), "kivi 4/2": (4, 2)}
"""Bits of keys and of values."""


def group_of(width: int) -> int:
    return max(group for group in (32, 16, 8, 4, 2, 1) if width % group == 0)


def bytes_of(codes: Array, bits: int) -> Array:
    """Codes [.., d] -> bytes [.., d * bits / 8]: byte j has channel j of every plane, the first in its lowest bits."""
    planes = 8 // bits
    parts = codes.astype(np.uint8).reshape(*codes.shape[:-1], planes, codes.shape[-1] // planes)
    return sum(parts[..., p, :] << np.uint8(bits * p) for p in range(planes)).astype(np.uint8)  # type: ignore[union-attr]


def asymmetric(x: Array, bits: int, axis: int) -> tuple[Array, Array, Array]:
    """Codes, and the scale and minimum (float16) that the axis shares."""
    least = x.min(axis, keepdims=True).astype(np.float16)
    scale = ((x.max(axis, keepdims=True) - x.min(axis, keepdims=True)) / np.float32(2**bits - 1)).astype(np.float16)
    wide = scale.astype(np.float32)
    steps = np.divide(x - least.astype(np.float32), wide, out=np.zeros_like(x), where=wide != 0)
    return np.clip(np.rint(steps), 0, 2**bits - 1), scale, least


def by_token(x: Array, bits: int) -> tuple[Array, Array, Array]:
    """x [n, H, d] -> bytes, meta [n, H, d / G, 2], and the numbers that they stand for."""
    width = x.shape[2]
    grouped = x.reshape(*x.shape[:2], width // group_of(width), group_of(width))
    codes, scale, least = asymmetric(grouped, bits, 3)
    meta = np.concatenate((scale, least), 3)
    numbers = codes * scale.astype(np.float32) + least.astype(np.float32)
    return bytes_of(codes.reshape(x.shape), bits), meta, numbers.reshape(x.shape)


def by_channel(x: Array, bits: int) -> tuple[Array, Array, Array]:
    """x [32 n, H, d] -> bytes, meta [2 n, H, d] (scale, minimum, scale, ...), and the numbers."""
    grouped = x.reshape(len(x) // 32, 32, *x.shape[1:])
    codes, scale, least = asymmetric(grouped, bits, 1)
    meta = np.concatenate((scale, least), 1).reshape(len(x) // 16, *x.shape[1:])
    numbers = codes * scale.astype(np.float32) + least.astype(np.float32)
    return bytes_of(codes.reshape(x.shape), bits), meta, numbers.reshape(x.shape)


def absolute(x: Array, kind: str) -> tuple[Array, Array, Array]:
    """x [n, H, d] -> codes int8, scales [n, H], and the numbers; floats of 8 bits are PyTorch's."""
    top = np.float32(448 if kind == "fp8" else 127)
    scale = (np.abs(x).max(2) / top).astype(np.float16)
    wide = scale.astype(np.float32)[..., None]
    codes = np.clip(np.divide(x, wide, out=np.zeros_like(x), where=wide != 0), -top, top)
    if kind == "fp8":
        floats = torch.from_numpy(codes).to(torch.float8_e4m3fn)
        return floats.view(torch.int8).numpy(), scale, floats.float().numpy() * wide
    codes = np.rint(codes)
    return codes.astype(np.int8), scale, codes * wide


def pack(kind: str, batch: Batch, cases: Sequence[Case], pages: int) -> PackedKV:
    """Arenas of that kind that hold the cases, whose keys and values become the numbers that their codes stand for.

    Of "kivi" whole groups of 32 tokens are packed, and the rest stays as it is. Other slots hold anything.
    """
    k_bits, v_bits = KINDS[kind]
    name = kind.split()[0]
    _, heads, width = cases[0].k.shape
    v_width = cases[0].v.shape[2]
    random = np.random.default_rng(1)

    def arena(dim: int, bits: int) -> Array:
        dtype = np.int8 if bits == 8 else np.uint8
        return random.integers(0, 127, (pages * 16, heads, dim * bits // 8)).astype(dtype)

    def scales(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float16)

    k, v = arena(width, k_bits), arena(v_width, v_bits)
    k_meta, v_meta = scales(pages * 16, heads), scales(pages * 16, heads)
    if name not in BYTE_KINDS:
        k_meta = scales(pages * 16, heads, width // group_of(width), 2)
        v_meta = scales(pages * 16, heads, v_width // group_of(v_width), 2)
    if name == "kivi":
        k_meta = scales(pages, heads, width)
    for s, case in enumerate(cases):
        own = np.array(batch.host.pages[0][s])
        slots = (own[:, None] * 16 + np.arange(16)).reshape(-1)[: case.length]
        keys, values = case.k.numpy(), case.v.numpy()
        if name in BYTE_KINDS:
            k[slots], k_meta[slots], keys = absolute(keys, name)
            v[slots], v_meta[slots], values = absolute(values, name)
        else:
            whole = case.length // 32 * 32 if name == "kivi" else case.length
            packed = slots[:whole]
            v[packed], v_meta[packed], done = by_token(values[:whole], v_bits)
            values = np.concatenate((done, values[whole:]))
            if name == "kivi":
                k[packed], k_meta[own[: whole // 16]], done = by_channel(keys[:whole], k_bits)
            else:
                k[packed], k_meta[packed], done = by_token(keys[:whole], k_bits)
            keys = np.concatenate((done, keys[whole:]))
        case.k, case.v = torch.from_numpy(keys.astype(np.float32)), torch.from_numpy(values.astype(np.float32))
    tensors: list[Tensor] = [torch.from_numpy(array) for array in (k, v, k_meta, v_meta)]
    return PackedKV(tensors[0], tensors[1], name, tensors[2], tensors[3], k_bits, v_bits)

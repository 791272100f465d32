"""Packing keys and values to 8, 4 and 2 bits, and reading them back; the layouts are those of `PackedKV`.

A code says where a number lies between a minimum and a maximum: x' = code * scale + minimum (Liu et al. 2024, KIVI,
arXiv 2402.02750, section 3.1), or as a share of the largest magnitude: x' = code * scale. Scales and minima are
rounded to float16 first and codes follow from the rounded ones, so the error is at most half a scale, besides what
that rounding leaves at the ends of the range. A code may itself be a float of 8 bits (Micikevicius et al. 2022,
arXiv 2209.05433), whose error is at most a sixteenth of the number. Every operation here is elementwise or a maximum: a
token (or group of tokens) gives the same bytes whatever is packed with it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import BYTE_KINDS, CHANNEL_GROUP, PLAIN_KINDS, PackedKV, value_group

_LARGEST = torch.finfo(torch.float16).max
_PAIR = CHANNEL_GROUP // PAGE_SIZE
_TOPS = {"int8": 127.0, "fp8": 448.0}
"""The largest code of each kind."""


class PackedCodes(NamedTuple):
    """Codes and their scales, as `PackedKV` names them."""

    codes: Tensor
    meta: Tensor


def pack_absmax(x: Tensor, kind: str) -> PackedCodes:
    """``x [N, H, d]`` -> codes int8 [N, H, d] and float16 scales [N, H], one for each token and head.

    ``kind`` is one of `BYTE_KINDS`.
    """
    x, top = x.float(), _TOPS[kind]
    scale = _half(x.abs().amax(-1) / top)
    codes = x / _divisor(scale).unsqueeze(-1)
    if kind == "fp8":
        return PackedCodes(to_float8(codes.clamp_(-top, top)), scale)
    return PackedCodes(codes.round_().clamp_(-top, top).to(torch.int8), scale)


def unpack_absmax(codes: Tensor, scale: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
    """The inverse of `pack_absmax`, in ``dtype``."""
    numbers = from_float8(codes) if kind == "fp8" else codes.float()
    return numbers.mul_(scale.float().unsqueeze(-1)).to(dtype)


def to_float8(x: Tensor) -> Tensor:
    """Float32 from -448 to 448 -> the bits of float8_e4m3fn, int8, rounded half to even.

    (By integers, as not every device knows the type, and PyTorch's own conversion takes several times as long.)
    """
    size = x.abs()
    bits = size.view(torch.int32)
    normal = ((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (120 << 3)  # exponents begin at -7, and not at -127
    # Below 2^-6 steps are all 2^-9 wide, which is what float32 has left from 2^14 on.
    small = (size + 2**14).view(torch.int32) - 0x46800000
    codes = torch.where(size < 2**-6, small, normal)
    return torch.where(x < 0, codes - 128, codes).to(torch.int8)


def from_float8(codes: Tensor) -> Tensor:
    """The inverse of `to_float8`: the bits are those of a float16 of which exponents begin 8 further down."""
    return ((codes.short() << 7) & -0x4080).view(torch.float16).float().mul_(256)


def pack_along_channels(x: Tensor, bits: int) -> PackedCodes:
    """``x [N, H, d]`` -> codes uint8 [N, H, d * bits / 8] and meta float16 [N, H, d / G, 2], scale and minimum.

    G neighbouring channels of a token's head share them.
    """
    group = value_group(x.shape[-1])
    grouped = x.float().unflatten(-1, (-1, group))
    codes, scale, low = _codes(grouped, bits, -1)
    return PackedCodes(to_planes(codes.flatten(-2), bits), torch.stack((scale, low), -1))


def unpack_along_channels(codes: Tensor, meta: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """The inverse of `pack_along_channels`, in ``dtype``."""
    numbers = from_planes(codes, bits).float()
    grouped = numbers.unflatten(-1, (meta.shape[-2], -1))
    scale, low = meta.float().unsqueeze(-2).unbind(-1)
    return grouped.mul_(scale).add_(low).flatten(-2).to(dtype)


def pack_along_tokens(x: Tensor, bits: int) -> PackedCodes:
    """``x [N, H, d]``, whole groups of 32 tokens -> codes uint8 [N, H, d * bits / 8] and meta float16 [N / 16, H, d].

    Of the two rows of meta that belong to a group, the first are the scales of its channels, the second their minima.
    """
    codes, scale, low = _codes(x.float().unflatten(0, (-1, CHANNEL_GROUP)), bits, 1)
    return PackedCodes(to_planes(codes.flatten(0, 1), bits), torch.stack((scale, low), 1).flatten(0, 1))


def unpack_along_tokens(codes: Tensor, meta: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """The inverse of `pack_along_tokens`, in ``dtype``."""
    numbers = from_planes(codes, bits).float().unflatten(0, (-1, CHANNEL_GROUP))
    scale, low = meta.float().unflatten(0, (-1, _PAIR)).unsqueeze(2).unbind(1)
    return numbers.mul_(scale).add_(low).flatten(0, 1).to(dtype)


def to_planes(codes: Tensor, bits: int) -> Tensor:
    """Codes uint8 [..., d] of ``bits`` bits -> bytes [..., d * bits / 8]: byte j has channel j of each plane."""
    planes = codes.chunk(8 // bits, -1)
    packed = planes[0].clone()
    for place, plane in enumerate(planes[1:], start=1):
        packed |= plane << (place * bits)
    return packed


def from_planes(packed: Tensor, bits: int) -> Tensor:
    """The inverse of `to_planes`."""
    mask = (1 << bits) - 1
    return torch.cat([(packed >> (place * bits)) & mask for place in range(8 // bits)], -1)


def unpack_pages(kv: PackedKV, pages: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Whole ``pages [n]`` in the order of their sequence -> k [n * 16, H_kv, d_k] and v [n * 16, H_kv, d_v].

    For "kivi" the first page has an even index in its sequence (several sequences may follow each other, each with an
    even count); the last page may lack its pair, which then is not packed yet and reads as zeros.
    """
    offsets = torch.arange(PAGE_SIZE, device=pages.device)
    return unpack_slots(kv, (pages.long()[:, None] * PAGE_SIZE + offsets).flatten(), dtype)


def unpack_slots(kv: PackedKV, slots: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``slots [n]`` int64 -> k [n, H_kv, d_k] and v [n, H_kv, d_v] in ``dtype``; plain kinds stay in their own.

    For "kivi" they are those of consecutive indices from a multiple of 32 on, and what is left after the last whole
    group of 32 reads as zeros: it is not packed yet.
    """
    k, v = kv.k.index_select(0, slots), kv.v.index_select(0, slots)
    if kv.kind in PLAIN_KINDS:
        return k, v
    assert kv.k_meta is not None
    assert kv.v_meta is not None
    v_meta = kv.v_meta.index_select(0, slots)
    if kv.kind in BYTE_KINDS:
        k_meta = kv.k_meta.index_select(0, slots)
        return unpack_absmax(k, k_meta, kv.kind, dtype), unpack_absmax(v, v_meta, kv.kind, dtype)
    v = unpack_along_channels(v, v_meta, kv.v_bits, dtype)
    if kv.kind == "int4":
        return unpack_along_channels(k, kv.k_meta.index_select(0, slots), kv.k_bits, dtype), v
    whole = slots.shape[0] // CHANNEL_GROUP * CHANNEL_GROUP
    k_meta = kv.k_meta.index_select(0, slots[:whole:PAGE_SIZE] // PAGE_SIZE)
    k = unpack_along_tokens(k[:whole], k_meta, kv.k_bits, dtype)
    if whole < slots.shape[0]:
        v[whole:] = 0
        k = torch.cat((k, k.new_zeros(slots.shape[0] - whole, *k.shape[1:])))
    return k, v


def _codes(x: Tensor, bits: int, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes uint8 of the shape of ``x``, and float16 scales and minima of its shape without ``axis``."""
    top = (1 << bits) - 1
    low, high = x.amin(axis), x.amax(axis)
    scale, low = _half((high - low) / top), _half(low)
    codes = (x - low.float().unsqueeze(axis)).div_(_divisor(scale).unsqueeze(axis)).round_().clamp_(0, top)
    return codes.to(torch.uint8), scale, low


def _half(x: Tensor) -> Tensor:
    """Convert to float16, clamped to its range (65,504): larger values would become infinite."""
    return x.clamp(-_LARGEST, _LARGEST).half()


def _divisor(scale: Tensor) -> Tensor:
    """Float32 scales to divide by; a group of equal numbers has the scale 0, and its codes are 0."""
    return torch.where(scale == 0, torch.ones_like(scale), scale).float()

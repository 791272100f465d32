"""The block types of ggml, which GGUF files hold: what their bytes mean, exactly.

A row of weights is a run of blocks, each with its own scales. Whatever the type, a weight is ``code * scale + offset``
in float32, where the code is a small integer and groups of 16 or 32 weights share scale and offset. The layouts are
those of ggml's ``ggml-common.h``, and results are those of its ``dequantize_row_*`` to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K = 10, 11, 12, 13, 14
IQ4_NL, IQ4_XS, MXFP4 = 20, 23, 39


class _Decoded(NamedTuple):
    """Codes ``[n, weights]`` (uint8 or int8); scale and offset ``[n, groups]`` float32, for equal runs of weights."""

    codes: Tensor
    scale: Tensor
    offset: Tensor | None = None


def _fields(packed: Tensor, width: int, bits: int) -> Tensor:
    """``packed [n, m]`` bytes of several fields of ``bits``, the lowest first -> ``[n, 8 m / bits]`` uint8.

    The order is that of ggml: of every ``width`` bytes first all lowest fields, then all next ones.
    """
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)[:, None]
    fields = packed.reshape(packed.shape[0], -1, 1, width) >> shifts
    return fields.bitwise_and_((1 << bits) - 1).view(packed.shape[0], -1)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte ``at`` of every block, ``[n, 1]`` float32."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _fifth_bits(qh: Tensor) -> Tensor:
    """``qh [n, 4]``, one bit a weight -> ``[n, 32]`` 0 or 16."""
    return _fields(qh, 1, 1) << 4


def _signed(codes: Tensor, minus: int) -> Tensor:
    return codes.view(torch.int8) - minus


def _q4_0(blocks: Tensor) -> _Decoded:
    return _Decoded(_signed(_fields(blocks[:, 2:], 16, 4), 8), _half(blocks, 0))


def _q4_1(blocks: Tensor) -> _Decoded:
    return _Decoded(_fields(blocks[:, 4:], 16, 4), _half(blocks, 0), _half(blocks, 2))


def _q5_0(blocks: Tensor) -> _Decoded:
    codes = _fields(blocks[:, 6:], 16, 4) | _fifth_bits(blocks[:, 2:6])
    return _Decoded(_signed(codes, 16), _half(blocks, 0))


def _q5_1(blocks: Tensor) -> _Decoded:
    codes = _fields(blocks[:, 8:], 16, 4) | _fifth_bits(blocks[:, 4:8])
    return _Decoded(codes, _half(blocks, 0), _half(blocks, 2))


def _q8_0(blocks: Tensor) -> _Decoded:
    return _Decoded(blocks[:, 2:].contiguous().view(torch.int8), _half(blocks, 0))


def _q2_k(blocks: Tensor) -> _Decoded:
    scales = blocks[:, :16]
    offset = _half(blocks, 82) * (scales >> 4).float()
    return _Decoded(_fields(blocks[:, 16:80], 32, 2), _half(blocks, 80) * (scales & 15).float(), offset.neg_())


def _q3_k(blocks: Tensor) -> _Decoded:
    scales = _fields(blocks[:, 96:104], 8, 4) | _fields(blocks[:, 104:108], 4, 2) << 4
    # A set bit of the mask means that nothing is taken away.
    codes = _fields(blocks[:, 32:96], 32, 2) | _fields(blocks[:, :32], 32, 1) << 2
    return _Decoded(_signed(codes, 4), _half(blocks, 108) * _signed(scales, 32).float())


def six_bits(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and offsets ``[n, 8]`` uint8 of Q4_K's and Q5_K's blocks, which count in the float16 before them."""
    first, second, rest = blocks[:, 4:16].split(4, 1)
    scales = torch.cat((first & 63, (rest & 15) | ((first >> 2) & 48)), 1)
    return scales, torch.cat((second & 63, (rest >> 4) | ((second >> 2) & 48)), 1)


def _scales_and_offsets(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The head that Q4_K and Q5_K share: two float16 and twice eight numbers of 6 bits."""
    scales, minima = six_bits(blocks)
    return _half(blocks, 0) * scales.float(), (_half(blocks, 2) * minima.float()).neg_()


def _q4_k(blocks: Tensor) -> _Decoded:
    return _Decoded(_fields(blocks[:, 16:], 32, 4), *_scales_and_offsets(blocks))


def _q5_k(blocks: Tensor) -> _Decoded:
    codes = _fields(blocks[:, 48:], 32, 4) | _fields(blocks[:, 16:48], 32, 1) << 4
    return _Decoded(codes, *_scales_and_offsets(blocks))


def _q6_k(blocks: Tensor) -> _Decoded:
    codes = _fields(blocks[:, :128], 64, 4) | _fields(blocks[:, 128:192], 32, 2) << 4
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float()
    return _Decoded(_signed(codes, 32), _half(blocks, 208) * scales)


IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice those of the format: the scale is halved instead, which keeps codes whole."""


@functools.cache
def _table(values: tuple[int, ...], device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.int8, device=device)


def _looked_up(values: tuple[int, ...], codes: Tensor) -> Tensor:
    return _table(values, codes.device).index_select(0, codes.flatten().int()).view(codes.shape)


def _iq4_nl(blocks: Tensor) -> _Decoded:
    return _Decoded(_looked_up(IQ4_VALUES, _fields(blocks[:, 2:], 16, 4)), _half(blocks, 0))


def _iq4_xs(blocks: Tensor) -> _Decoded:
    scales = _fields(blocks[:, 4:8], 1, 4) | _fields(blocks[:, 2:4], 1, 2) << 4
    codes = _looked_up(IQ4_VALUES, _fields(blocks[:, 8:], 16, 4))
    return _Decoded(codes, _half(blocks, 0) * _signed(scales, 32).float())


def _mxfp4(blocks: Tensor) -> _Decoded:
    # The scale is 2^(e - 128), written as float32 bits; the two smallest are subnormal.
    exponent = blocks[:, :1].int()
    scale = torch.where(exponent < 2, 0x00200000 << exponent, (exponent - 1) << 23).view(torch.float32)
    return _Decoded(_looked_up(MXFP4_VALUES, _fields(blocks[:, 1:], 16, 4)), scale)


class BlockType(NamedTuple):
    """One type: its name, how many weights a block holds in how many bytes, and what its blocks stand for."""

    name: str
    weights: int
    bytes: int
    decode: Callable[[Tensor], _Decoded]

    def row_bytes(self, in_features: int) -> int:
        """Bytes of one row of weights. ValueError where it is not a whole number of blocks."""
        if in_features % self.weights:
            raise ValueError(f"{in_features} weights are no whole number of {self.name} blocks of {self.weights}")
        return in_features // self.weights * self.bytes


BLOCKS: dict[int, BlockType] = {
    Q4_0: BlockType("Q4_0", 32, 18, _q4_0),
    Q4_1: BlockType("Q4_1", 32, 20, _q4_1),
    Q5_0: BlockType("Q5_0", 32, 22, _q5_0),
    Q5_1: BlockType("Q5_1", 32, 24, _q5_1),
    Q8_0: BlockType("Q8_0", 32, 34, _q8_0),
    Q2_K: BlockType("Q2_K", 256, 84, _q2_k),
    Q3_K: BlockType("Q3_K", 256, 110, _q3_k),
    Q4_K: BlockType("Q4_K", 256, 144, _q4_k),
    Q5_K: BlockType("Q5_K", 256, 176, _q5_k),
    Q6_K: BlockType("Q6_K", 256, 210, _q6_k),
    IQ4_NL: BlockType("IQ4_NL", 32, 18, _iq4_nl),
    IQ4_XS: BlockType("IQ4_XS", 256, 136, _iq4_xs),
    MXFP4: BlockType("MXFP4", 32, 17, _mxfp4),
}
"""By ggml's type number."""


def dequantise(type: int, data: Tensor, out: Tensor | None = None) -> Tensor:
    """Rows of blocks ``data [rows, row_bytes]`` uint8 -> their weights ``[rows, K]`` float32.

    ``out``, contiguous and of that shape, takes the result. KeyError for an unknown type, ValueError where rows are no
    whole number of blocks.
    """
    block = BLOCKS[type]
    rows, row_bytes = data.shape
    if row_bytes % block.bytes:
        raise ValueError(f"rows of {row_bytes} bytes are no whole number of {block.name} blocks of {block.bytes}")
    if out is None:
        out = torch.empty(rows, row_bytes // block.bytes * block.weights, dtype=torch.float32, device=data.device)
    if not out.numel():
        return out
    codes, scale, offset = block.decode(data.reshape(-1, block.bytes))
    groups = out.view(*scale.shape, -1)
    groups.copy_(codes.view(groups.shape))
    # Two roundings, as ggml makes them: a fused operation would make one.
    groups.mul_(scale[..., None])
    if offset is not None:
        groups.add_(offset[..., None])
    return out

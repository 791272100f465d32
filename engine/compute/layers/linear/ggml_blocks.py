"""The block types of ggml, which GGUF files hold: what their bytes mean, exactly.

A row of weights is a run of blocks, each with its own scales. Whatever the type, a weight is ``code * scale + offset``
in float32, where the code is a small integer and groups of 16, 32 or 256 weights share scale and offset. The layouts
are those of ggml's ``ggml-common.h``, and results are those of its ``dequantize_row_*`` to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.linear import ggml_codebooks as books
from engine.compute.layers.linear.ggml_fields import Decoded, fields, half, signed

Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K = 10, 11, 12, 13, 14
IQ4_NL, IQ4_XS, MXFP4 = 20, 23, 39
IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ3_S, IQ2_S, IQ1_M = 16, 17, 18, 19, 21, 22, 29
TQ1_0, TQ2_0 = 34, 35


def _fifth_bits(qh: Tensor) -> Tensor:
    """``qh [n, 4]``, one bit a weight -> ``[n, 32]`` 0 or 16."""
    return fields(qh, 1, 1) << 4


def _q4_0(blocks: Tensor) -> Decoded:
    return Decoded(signed(fields(blocks[:, 2:], 16, 4), 8), half(blocks, 0))


def _q4_1(blocks: Tensor) -> Decoded:
    return Decoded(fields(blocks[:, 4:], 16, 4), half(blocks, 0), half(blocks, 2))


def _q5_0(blocks: Tensor) -> Decoded:
    codes = fields(blocks[:, 6:], 16, 4) | _fifth_bits(blocks[:, 2:6])
    return Decoded(signed(codes, 16), half(blocks, 0))


def _q5_1(blocks: Tensor) -> Decoded:
    codes = fields(blocks[:, 8:], 16, 4) | _fifth_bits(blocks[:, 4:8])
    return Decoded(codes, half(blocks, 0), half(blocks, 2))


def _q8_0(blocks: Tensor) -> Decoded:
    return Decoded(blocks[:, 2:].contiguous().view(torch.int8), half(blocks, 0))


def _q2_k(blocks: Tensor) -> Decoded:
    scales = blocks[:, :16]
    offset = half(blocks, 82) * (scales >> 4).float()
    return Decoded(fields(blocks[:, 16:80], 32, 2), half(blocks, 80) * (scales & 15).float(), offset.neg_())


def _q3_k(blocks: Tensor) -> Decoded:
    scales = fields(blocks[:, 96:104], 8, 4) | fields(blocks[:, 104:108], 4, 2) << 4
    # A set bit of the mask means that nothing is taken away.
    codes = fields(blocks[:, 32:96], 32, 2) | fields(blocks[:, :32], 32, 1) << 2
    return Decoded(signed(codes, 4), half(blocks, 108) * signed(scales, 32).float())


def six_bits(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and offsets ``[n, 8]`` uint8 of Q4_K's and Q5_K's blocks, which count in the float16 before them."""
    first, second, rest = blocks[:, 4:16].split(4, 1)
    scales = torch.cat((first & 63, (rest & 15) | ((first >> 2) & 48)), 1)
    return scales, torch.cat((second & 63, (rest >> 4) | ((second >> 2) & 48)), 1)


def _scales_and_offsets(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The head that Q4_K and Q5_K share: two float16 and twice eight numbers of 6 bits."""
    scales, minima = six_bits(blocks)
    return half(blocks, 0) * scales.float(), (half(blocks, 2) * minima.float()).neg_()


def _q4_k(blocks: Tensor) -> Decoded:
    return Decoded(fields(blocks[:, 16:], 32, 4), *_scales_and_offsets(blocks))


def _q5_k(blocks: Tensor) -> Decoded:
    codes = fields(blocks[:, 48:], 32, 4) | fields(blocks[:, 16:48], 32, 1) << 4
    return Decoded(codes, *_scales_and_offsets(blocks))


def _q6_k(blocks: Tensor) -> Decoded:
    codes = fields(blocks[:, :128], 64, 4) | fields(blocks[:, 128:192], 32, 2) << 4
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float()
    return Decoded(signed(codes, 32), half(blocks, 208) * scales)


IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice those of the format: the scale is halved instead, which keeps codes whole."""


@functools.cache
def _table(values: tuple[int, ...], device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.int8, device=device)


def _looked_up(values: tuple[int, ...], codes: Tensor) -> Tensor:
    return _table(values, codes.device).index_select(0, codes.flatten().int()).view(codes.shape)


def _iq4_nl(blocks: Tensor) -> Decoded:
    return Decoded(_looked_up(IQ4_VALUES, fields(blocks[:, 2:], 16, 4)), half(blocks, 0))


def _iq4_xs(blocks: Tensor) -> Decoded:
    scales = fields(blocks[:, 4:8], 1, 4) | fields(blocks[:, 2:4], 1, 2) << 4
    codes = _looked_up(IQ4_VALUES, fields(blocks[:, 8:], 16, 4))
    return Decoded(codes, half(blocks, 0) * signed(scales, 32).float())


def _mxfp4(blocks: Tensor) -> Decoded:
    # The scale is 2^(e - 128), written as float32 bits; the two smallest are subnormal.
    exponent = blocks[:, :1].int()
    scale = torch.where(exponent < 2, 0x00200000 << exponent, (exponent - 1) << 23).view(torch.float32)
    return Decoded(_looked_up(MXFP4_VALUES, fields(blocks[:, 1:], 16, 4)), scale)


def _tq1_0(blocks: Tensor) -> Decoded:
    # A byte over 256 is a fraction of five digits to the base of 3: the first is the whole part of three times that.
    parts = []
    for start, width, digits in ((0, 32, 5), (32, 16, 5), (48, 4, 4)):
        powers = torch.tensor([3**i for i in range(digits)], dtype=torch.uint8, device=blocks.device)[:, None]
        parts.append((blocks[:, start : start + width].unsqueeze(1) * powers).flatten(1))
    codes = (torch.cat(parts, 1).int() * 3 >> 8).to(torch.int8) - 1
    return Decoded(codes, half(blocks, 52))


def _tq2_0(blocks: Tensor) -> Decoded:
    return Decoded(signed(fields(blocks[:, :64], 32, 2), 1), half(blocks, 64))


CODEBOOKS = {
    IQ2_XXS: "IQ2_XXS",
    IQ2_XS: "IQ2_XS",
    IQ2_S: "IQ2_S",
    IQ3_XXS: "IQ3_XXS",
    IQ3_S: "IQ3_S",
    IQ1_S: "IQ1_S",
    IQ1_M: "IQ1_S",
}
"""The types that index a codebook, and its name."""


class BlockType(NamedTuple):
    """One type: its name, how many weights a block holds in how many bytes, and what its blocks stand for."""

    name: str
    weights: int
    bytes: int
    decode: Callable[[Tensor], Decoded]

    def row_bytes(self, in_features: int) -> int:
        """Bytes of one row of weights. ValueError where it is not a whole number of blocks."""
        if in_features % self.weights:
            raise ValueError(f"{in_features} weights are not a whole number of {self.name} blocks of {self.weights}")
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
    IQ2_XXS: BlockType("IQ2_XXS", 256, 66, books.iq2_xxs),
    IQ2_XS: BlockType("IQ2_XS", 256, 74, books.iq2_xs),
    IQ3_XXS: BlockType("IQ3_XXS", 256, 98, books.iq3_xxs),
    IQ1_S: BlockType("IQ1_S", 256, 50, books.iq1_s),
    IQ4_NL: BlockType("IQ4_NL", 32, 18, _iq4_nl),
    IQ3_S: BlockType("IQ3_S", 256, 110, books.iq3_s),
    IQ2_S: BlockType("IQ2_S", 256, 82, books.iq2_s),
    IQ4_XS: BlockType("IQ4_XS", 256, 136, _iq4_xs),
    IQ1_M: BlockType("IQ1_M", 256, 56, books.iq1_m),
    TQ1_0: BlockType("TQ1_0", 256, 54, _tq1_0),
    TQ2_0: BlockType("TQ2_0", 256, 66, _tq2_0),
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
        raise ValueError(f"rows of {row_bytes} bytes are not a whole number of {block.name} blocks of {block.bytes}")
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

"""ggml's blocks of 4-bit codes in planes: the same numbers in as many bytes, so that nothing is lost and none wasted.

A block of planes holds 128 input features: four of ggml's blocks of 32, or half a block of Q4_K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.ggml import GgmlWeights
from engine.compute.layers.linear.ggml_blocks import (
    BLOCKS,
    IQ4_NL,
    IQ4_VALUES,
    MXFP4,
    MXFP4_VALUES,
    Q4_1,
    Q4_K,
    six_bits,
)
from engine.compute.layers.linear.triton.plane_layer import Form, PlaneLinear

PLANE = 32
CHUNK_WEIGHTS = 1 << 24
"""Weights packed at a time: on the way they take ten bytes each."""


class _PlaneLayout(NamedTuple):
    """Layout of a type. Its codes begin at byte ``at``: low nibbles of ``width`` bytes, then the high ones."""

    form: Form
    scales: torch.dtype
    at: int
    width: int = 16


_HELD = {
    Q4_1: _PlaneLayout(Form(PLANE, "float16", "added"), torch.float16, 4),
    Q4_K: _PlaneLayout(Form(PLANE, "two_level", "two_level"), torch.int16, 16, 32),
    IQ4_NL: _PlaneLayout(Form(PLANE, "float16", "none", tuple(map(float, IQ4_VALUES))), torch.float16, 2),
    MXFP4: _PlaneLayout(Form(PLANE, "exponent", "none", tuple(map(float, MXFP4_VALUES))), torch.uint8, 1),
}


class TritonGgmlPlanes(PlaneLinear):
    """``scales`` float16, or exponents (uint8), or 64 bits of two-level scales and offsets; ``offsets`` of Q4_1."""

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        self.type, held = shape.block_type, _HELD[shape.block_type]
        offsets = torch.float16 if self.type == Q4_1 else None
        super().__init__(held.form, shape, target, device, held.scales, offsets)
        self.kind = BLOCKS[self.type].name

    def fill(self, parts: Sequence[GgmlWeights]) -> None:
        """Pack the parts on the device, some output features at a time."""
        start, step = 0, max(1, CHUNK_WEIGHTS // self.in_features)
        for part in parts:
            for data in part.data.split(step):
                self._put(data.to(self.device).unflatten(1, (-1, BLOCKS[self.type].bytes)), start)
                start += len(data)

    def _put(self, blocks: Tensor, start: int) -> None:
        """``blocks [n, K / weights, bytes]`` of the output features from ``start``."""
        held = _HELD[self.type]
        nibbles = blocks[..., held.at :].unflatten(2, (-1, 1, held.width))
        self.put_codes(torch.cat((nibbles & 15, nibbles >> 4), 3).flatten(1), start)
        if self.type == Q4_K:
            words = two_levels(blocks.flatten(0, 1)).view(len(blocks), -1)
            self.scales.view(torch.int64)[:, start : start + len(blocks), 0] = words.t()
            return
        self.put_groups(blocks[..., 0] if self.type == MXFP4 else _half(blocks, 0), self.scales, start)
        if self.offsets is not None:
            self.put_groups(_half(blocks, 2), self.offsets, start)


def serves(type: int, in_features: int) -> bool:
    return type in _HELD and in_features % (4 * PLANE) == 0


def two_levels(blocks: Tensor) -> Tensor:
    """Q4_K's ``blocks [n, 144]`` -> ``[n, 2]`` int64: scales and offsets as planes.py has them."""
    places = 6 * torch.arange(4, device=blocks.device)
    words = blocks[:, :4].contiguous().view(torch.int16).long() << 48
    for numbers, first in zip(six_bits(blocks), (0, 24), strict=True):
        words |= (numbers.long().view(-1, 2, 4) << (places + first)).sum(2)
    return words


def _half(blocks: Tensor, at: int) -> Tensor:
    return blocks[..., at : at + 2].contiguous().view(torch.float16)[..., 0]

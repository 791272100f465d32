"""Group-affine weights of any number of bits up to 8: what GPTQ and compressed-tensors pack other than in 4 bits.

``W[n, k] = scale[group of k, n] * (code[k, n] - zero[group of k, n])`` with codes and zeros of ``bits`` bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.compute.layers.linear.affine import CHUNK, AffineColumns
from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.blockwise import BlockwiseLinear, by_group


class CodedWeights(Protocol):
    """A packed module of a checkpoint. Groups are the file's: ``scales`` and ``zeros`` of ``columns`` have all."""

    in_features: int
    out_features: int
    bits: int
    group_size: int
    """Input features to a group; the last one may be shorter."""
    group_of: Tensor | None
    """int32 [K]: the group of every input feature; None where it is ``k // group_size``."""

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``; ``words [ceil(K * bits / 32), n]`` are a stream as :func:`unpack`'s."""


def unpack(words: Tensor, bits: int, count: int, out: Tensor | None = None) -> Tensor:
    """``words [W, n]`` int32 -> the first ``count`` codes ``[count, n]`` uint8 of each column, or in ``out`` as it is.

    A column's words are one stream of bits, the lowest first: code i takes the bits from ``i * bits`` on, and may lie
    in two words. (GPTQ's layout of 3 bits, 32 codes in 3 words, is the same.)
    """
    common = math.gcd(bits, 32)
    codes_per_run, words_per_run = 32 // common, bits // common
    if out is None:
        out = torch.empty(count, words.shape[1], dtype=torch.uint8, device=words.device)
    for first in range(min(codes_per_run, count)):
        place = out[first::codes_per_run]
        word, shift = divmod(first * bits, 32)
        code = words[word::words_per_run][: len(place)] >> shift
        if shift + bits > 32:
            code &= (1 << (32 - shift)) - 1
            code |= words[word + 1 :: words_per_run][: len(place)] << (32 - shift)
        place.copy_(code.bitwise_and_((1 << bits) - 1))
    return out


def pack(codes: Tensor, bits: int) -> Tensor:
    """The inverse of :func:`unpack`: ``codes [count, n]`` uint8 -> words ``[ceil(count * bits / 32), n]`` int32."""
    common = math.gcd(bits, 32)
    codes_per_run, words_per_run = 32 // common, bits // common
    words = torch.zeros(word_count(len(codes), bits), codes.shape[1], dtype=torch.int32, device=codes.device)
    for first in range(min(codes_per_run, len(codes))):
        some = codes[first::codes_per_run].to(torch.int32)
        word, shift = divmod(first * bits, 32)
        words[word::words_per_run][: len(some)] |= some << shift
        if shift + bits > 32:
            words[word + 1 :: words_per_run][: len(some)] |= some >> (32 - shift)
    return words


def word_count(count: int, bits: int) -> int:
    """Words that hold ``count`` codes."""
    return -(-count * bits // 32)


def each(parts: Sequence[CodedWeights]) -> Iterator[tuple[slice, Tensor | None, AffineColumns]]:
    """The output features of all parts, some at a time, with their place in the fused layer."""
    base = 0
    for part in parts:
        for start in range(0, part.out_features, CHUNK):
            stop = min(start + CHUNK, part.out_features)
            yield slice(base + start, base + stop), part.group_of, part.columns(start, stop)
        base += part.out_features


class CodedLinear(BlockwiseLinear):
    """``words [W, N]`` int32 as in the file, ``scales [groups, N]`` as in the file, ``zeros`` uint8 alike.

    ``zeros`` is None where every zero-point is the middle, 2^(bits - 1). ``group_of [K]`` int32 or None.
    """

    held = ("words", "scales", "zeros", "group_of")

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.kind, self.bits, self.group_size = f"int{shape.bits}", shape.bits, shape.group
        words, groups = word_count(shape.in_features, shape.bits), (shape.groups, shape.out_features)
        self.words = torch.empty(words, shape.out_features, dtype=torch.int32, device=device)
        self.scales = torch.empty(groups, dtype=shape.scales, device=device)
        self.zeros = None if shape.symmetric else torch.empty(groups, dtype=torch.uint8, device=device)
        self.group_of = shape.new_order(device)

    def fill(self, parts: Sequence[CodedWeights]) -> None:
        """Copy the parts, which agree in bits, groups and ``group_of``, some output features at a time."""
        for place, group_of, (words, scales, zeros) in each(parts):
            self.words[:, place], self.scales[:, place] = words, scales
            if self.zeros is not None:
                self.zeros[:, place] = zeros
            self.group_of = None if group_of is None else group_of.to(self.device)

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        part = slice(start, stop)
        weight = self.buffer("codes", self.in_features, stop - start)
        unpack(self.words[:, part], self.bits, self.in_features, weight)
        groups = (0, self.group_size, self.group_of)
        if self.zeros is None:
            weight.sub_(1 << (self.bits - 1))
        else:
            by_group(Tensor.sub_, weight, self.zeros[:, part], *groups)
        by_group(Tensor.mul_, weight, self.scales[:, part].float(), *groups)
        return weight.t()

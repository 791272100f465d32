"""8-bit weights: one code a byte, with a scale for each row (LLM.int8) or for each group of a row (GPTQ and others)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.blockwise import BlockwiseLinear, by_group
from engine.compute.layers.linear.coded import each


class Int8Rows(Protocol):
    """A packed module of LLM.int8: ``codes [N, K]`` int8, ``largest [N]`` float32, the rows' largest magnitudes."""

    out_features: int
    codes: Tensor
    largest: Tensor


class Int8Linear(BlockwiseLinear):
    """``W[n, k] = (codes[n, k] - zeros[n, g]) * scales[n, g]``, g the group of input feature k.

    ``codes [N, K]`` int8, ``scales [N, groups]`` floating, ``zeros`` int8 like scales, None where all are 0. Formats
    with codes of 0..255 are held 128 lower. ``group_of [K]`` int32 or None (see coded.py).
    """

    kind = "int8"
    held = ("codes", "scales", "zeros", "group_of")

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.group_size = shape.group
        groups = (shape.out_features, shape.groups)
        self.codes = torch.empty(shape.out_features, shape.in_features, dtype=torch.int8, device=device)
        self.scales = torch.empty(groups, dtype=shape.scales, device=device)
        self.zeros = None if shape.symmetric else torch.empty(groups, dtype=torch.int8, device=device)
        self.group_of = shape.new_order(device)

    def fill(self, parts: Sequence[Any]) -> None:
        """Unpack parts, which agree in groups and ``group_of``, some output features at a time."""
        for place, group_of, (words, scales, zeros) in each(parts):
            self.codes[place], self.scales[place] = signed_rows(words, self.in_features), scales.t()
            if self.zeros is not None:
                self.zeros[place] = signed(zeros).t()
            self.group_of = None if group_of is None else group_of.to(self.device)

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        part = slice(start, stop)
        weight = self.buffer("codes", stop - start, self.in_features)
        weight.copy_(self.codes[part])
        groups = (1, self.group_size, self.group_of)
        if self.zeros is not None:
            by_group(Tensor.sub_, weight, self.zeros[part], *groups)
        by_group(Tensor.mul_, weight, self.scales[part].float(), *groups)
        return weight


class Int8RowsLinear(Int8Linear):
    """LLM.int8 (Dettmers et al. 2022): ``W[n, k] = codes[n, k] * scales[n, 0] / 127``, scales float32."""

    def fill(self, parts: Sequence[Any]) -> None:
        """Copy parts (:class:`Int8Rows`) whose codes are in rows already."""
        put_rows(parts, self.codes, self.scales[:, 0])

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        return super().rows(start, stop, dtype).mul_(1 / 127)


def put_rows(parts: Sequence[Int8Rows], codes: Tensor, scales: Tensor) -> None:
    """Copy parts, one after another, into ``codes [N, K]`` and ``scales [N]``."""
    sizes = [part.out_features for part in parts]
    for part, rows, largest in zip(parts, codes.split(sizes), scales.split(sizes), strict=True):
        rows.copy_(part.codes)
        largest.copy_(part.largest)


def signed_rows(words: Tensor, in_features: int) -> Tensor:
    """``words [ceil(K / 4), n]`` int32 of codes 0..255 -> ``[n, K]`` int8, 128 lower."""
    # Whole words are turned round, which is quicker than bytes; a column's last one may be partly filled.
    rows = words.t().clone(memory_format=torch.contiguous_format).view(torch.uint8)
    return signed(rows[:, :in_features])


def signed(codes: Tensor) -> Tensor:
    """Codes 0..255 (uint8) -> the same less 128, as int8."""
    return (codes ^ 128).view(torch.int8)

"""8-bit weights: one code a byte, with a scale for each row (LLM.int8) or for each group of a row (GPTQ and others)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.layers.linear.blockwise import BlockwiseLinear, by_group
from engine.layers.linear.coded import each
from engine.layers.numerics import Numerics


class Int8Rows(Protocol):
    """A packed module of LLM.int8: ``codes [N, K]`` int8, ``largest [N]`` float32, the rows' largest magnitudes."""

    out_features: int
    codes: Tensor
    largest: Tensor


class Int8Linear(BlockwiseLinear):
    """``W[n, k] = (codes[n, k] - zeros[n, g]) * scales[n, g]``, g the group of input feature k.

    ``codes [N, K]`` int8, ``scales [N, groups]`` floating, ``zeros`` int8 like scales, dropped where all are 0. Formats
    with codes of 0..255 are held 128 lower. ``group_of [K]`` int32 or None (see coded.py).
    """

    kind = "int8"
    held = ("codes", "scales", "zeros", "group_of")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        group_size: int,
        scales: torch.dtype,
        device: torch.device,
        numerics: Numerics,
        symmetric: bool = False,
        ordered: bool = False,
    ) -> None:
        """A layer whose tensors are allocated but not filled (on device "meta": to plan with)."""
        super().__init__(in_features, out_features, device, numerics, [])
        self.group_size = group_size
        shape = (out_features, -(-in_features // group_size))
        self.codes = torch.empty(out_features, in_features, dtype=torch.int8, device=device)
        self.scales = torch.empty(shape, dtype=scales, device=device)
        self.zeros: Tensor | None = None if symmetric else torch.empty(shape, dtype=torch.int8, device=device)
        self.group_of = torch.empty(in_features, dtype=torch.int32, device=device) if ordered else None

    def fill(self, parts: Sequence[Any]) -> None:
        """Unpack parts, which agree in groups and ``group_of``, some output features at a time."""
        assert self.zeros is not None
        for place, group_of, (words, scales, zeros) in each(parts):
            # Whole words are turned round, which is quicker than bytes; a column's last one may be partly filled.
            rows = words.t().clone(memory_format=torch.contiguous_format).view(torch.uint8)
            self.codes[place] = _signed(rows[:, : self.in_features])
            self.scales[place], self.zeros[place] = scales.t(), _signed(zeros).t()
            self.group_of = None if group_of is None else group_of.to(self.device)
        if not bool(self.zeros.any()):
            self.zeros = None

    def rows(self, start: int, stop: int) -> Tensor:
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

    def __init__(self, in_features: int, out_features: int, device: torch.device, numerics: Numerics) -> None:
        super().__init__(in_features, out_features, in_features, torch.float32, device, numerics, symmetric=True)

    def fill(self, parts: Sequence[Any]) -> None:
        """Copy parts (:class:`Int8Rows`) whose codes are in rows already."""
        start = 0
        for part in parts:
            place = slice(start, start + part.out_features)
            self.codes[place], self.scales[place, 0] = part.codes, part.largest
            start += part.out_features

    def rows(self, start: int, stop: int) -> Tensor:
        return super().rows(start, stop).mul_(1 / 127)


def _signed(codes: Tensor) -> Tensor:
    """Codes 0..255 (uint8) -> the same less 128, as int8."""
    return (codes ^ 128).view(torch.int8)

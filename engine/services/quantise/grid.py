"""Group-affine weights: choosing scales and zero-points, rounding to codes, and the layouts of GPTQ and AWQ files."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.compute.layers.linear.coded import pack
from engine.formats.quantised.awq import ORDER
from engine.services.training.errors import RecipeError

SHARES = tuple(1 - 0.05 * step for step in range(10))
"""Shares of a group's span that its codes may cover, where the search of :meth:`Grid.fit` is asked for."""


@dataclass(frozen=True)
class Grid:
    """Set of integer codes, 0 to :attr:`top`; a symmetric one has its zero-point in the middle."""

    bits: int
    symmetric: bool

    @property
    def top(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    def fit(self, weights: Tensor, importance: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scales (as float16 has them, in float32) and zero-points ``[...]`` of groups ``weights [..., G]`` float32.

        Without ``importance`` the codes cover the whole span; with it (``[G]`` or as ``weights``, such as the mean
        square of what each weight is multiplied by) they cover the share of the span that has the least weighted error.
        A span holds 0 always, so that a weight of 0 stays 0. Raises :class:`RecipeError` for weights that are no
        numbers, or too large for float16.
        """
        low, high = weights.amin(-1).clamp(max=0), weights.amax(-1).clamp(min=0)
        if self.symmetric:
            high = torch.maximum(high, -low)
            low = -high
        best: tuple[Tensor, Tensor, Tensor] | None = None
        for share in (1.0,) if importance is None else SHARES:
            # The scale is rounded before the codes are chosen, so they make up for its rounding.
            scale = ((high - low) * (share / self.top)).half().float()
            if self.symmetric:
                zero = torch.full_like(scale, (self.top + 1) // 2)
            else:
                zero = (-low * share * _inverse(scale)).round().clamp(0, self.top)
            if importance is None:
                best = zero, scale, zero
                break
            off = self.rounded(weights, scale, zero).sub_(weights)
            error = off.square_().mul_(importance).sum(-1)
            if best is not None:
                better = error < best[0]
                error, scale, zero = (
                    torch.where(better, new, old) for new, old in zip((error, scale, zero), best, strict=True)
                )
            best = error, scale, zero
        assert best is not None
        if not bool(torch.isfinite(best[1]).all()):
            raise RecipeError(
                "The model holds weights that are not numbers or too large for 16 bits. Download it again."
            )
        return best[1], best[2]

    def codes(self, weights: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """Codes ``[..., G]`` as float32 of groups with ``scale [...]`` and ``zero [...]``."""
        return (weights * _inverse(scale)[..., None]).round_().add_(zero[..., None]).clamp_(0, self.top)

    def rounded(self, weights: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """Dequantised values of the codes of ``weights``, a new tensor."""
        return self.codes(weights, scale, zero).sub_(zero[..., None]).mul_(scale[..., None])


@dataclass
class GroupedWeights:
    """``W[n, k] = scales[n, g] * (codes[n, k] - zeros[n, g])``, g being ``group_of[k]``.

    ``codes [N, K]`` and ``zeros [N, groups]`` uint8, ``scales [N, groups]`` float16, ``group_of [K]`` int64.
    """

    grid: Grid
    codes: Tensor
    scales: Tensor
    zeros: Tensor
    group_of: Tensor

    def dense(self) -> Tensor:
        """``W [N, K]`` float32, as a loader has it."""
        zeros, scales = self.zeros.float()[:, self.group_of], self.scales.float()[:, self.group_of]
        return (self.codes.float() - zeros) * scales

    def divide_rows(self, divisor: Tensor) -> None:
        """Divide the output features by ``divisor [N]``."""
        self.scales = (self.scales.float() / divisor[:, None]).half()

    def gptq(self) -> dict[str, Tensor]:
        """The tensors of a GPTQ file. Zero-points are stored one too low in version 1 (AutoGPTQ), which everybody reads
        but which has no zero-point of 0; with zero-points that differ it is version 2 ("gptq_v2"), as in GPTQModel."""
        stored = self.zeros - 1 if self.grid.symmetric else self.zeros
        return {
            "qweight": pack(self.codes.t().contiguous(), self.grid.bits).cpu(),
            "qzeros": pack(stored, self.grid.bits).t().contiguous().cpu(),
            "scales": self.scales.t().contiguous().cpu(),
            "g_idx": self.group_of.to("cpu", torch.int32),
        }

    def awq(self) -> dict[str, Tensor]:
        """The tensors of an AWQ file of version "gemm"."""
        return {
            "qweight": _pack_columns(self.codes.t()).cpu(),
            "qzeros": _pack_columns(self.zeros.t()).cpu(),
            "scales": self.scales.t().contiguous().cpu(),
        }


def nearest(weight: Tensor, grid: Grid, group: int, importance: Tensor | None = None) -> GroupedWeights:
    """Each weight of ``weight [N, K]`` rounded to the nearest code; ``group`` divides K. See :meth:`Grid.fit`.

    ``importance [K]`` is of each input feature.
    """
    rows, columns = weight.shape
    grouped = weight.view(rows, -1, group)
    scale, zero = grid.fit(grouped, None if importance is None else importance.view(-1, group))
    codes = grid.codes(grouped, scale, zero).view(rows, columns)
    group_of = torch.arange(columns, device=weight.device) // group
    return GroupedWeights(grid, codes.to(torch.uint8), scale.half(), zero.to(torch.uint8), group_of)


def relative_error(weight: Tensor, other: Tensor, hessian: Tensor) -> float:
    """The squared difference of the outputs of two weights ``[N, K]`` over the squared outputs of the first.

    ``hessian [K, K]`` is the inputs' mean of ``x x^T`` but for a factor.
    """
    difference = other - weight
    energy = float((weight @ hessian).mul_(weight).sum(dtype=torch.float64))
    lost = float((difference @ hessian).mul_(difference).sum(dtype=torch.float64))
    return max(0.0, lost) / energy if energy > 0 else 0.0


def _pack_columns(codes: Tensor) -> Tensor:
    """``codes [rows, N]`` uint8 -> words ``[rows, N / 8]`` int32 in AWQ's order."""
    words = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int32, device=codes.device)
    for place, column in enumerate(ORDER):
        words |= codes[:, column::8].to(torch.int32) << 4 * place
    return words


def _inverse(scale: Tensor) -> Tensor:
    """1 / scale, 0 where the scale is 0 (a group of zeros)."""
    return torch.where(scale == 0, 0.0, 1.0 / scale)

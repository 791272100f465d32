"""AWQ (Lin et al. 2023): input features that see large activations are scaled up before they are rounded.

``W diag(s) diag(s)^-1 x`` is ``W x``; what divides by s is folded into whatever makes x.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.services.quantise.grid import Grid, nearest

STEPS = 20
"""Exponents from 0 on that are tried: ``s = mean|x|^(step / STEPS)``."""
_ROWS = 512
"""Output features of a module by which the exponent is chosen."""


def search_scales(weights: Sequence[Tensor], hessian: Tensor, magnitude: Tensor, grid: Grid, group: int) -> Tensor:
    """``s [K]`` float32 for modules that read one input, by the least error of their outputs.

    ``weights`` are ``[N, K]`` each, ``hessian [K, K]`` the inputs' mean of ``x x^T`` but for a factor,
    ``magnitude [K]`` the mean of |x|, alike for features that must have the same scale.
    """
    some = torch.cat([weight[:: -(-len(weight) // _ROWS)] for weight in weights])
    best, least = torch.ones_like(magnitude), float("inf")
    for step in range(STEPS):
        scales = magnitude.clamp(min=1e-4).pow(step / STEPS)
        scales = scales / (scales.max() * scales.min()).sqrt()
        off = nearest(some * scales, grid, group).dense().div_(scales).sub_(some)
        error = float((off @ hessian).mul_(off).sum(dtype=torch.float64))
        if error < least:
            best, least = scales, error
    return best


def fold_into_norm(weight: Tensor, scales: Tensor, dtype: torch.dtype, offset: bool) -> tuple[Tensor, Tensor]:
    """A norm's weight ``[K]`` divided by ``scales [K]``, rounded to ``dtype`` as a file stores it, and the scales that
    this stands for: what the rounding changed they make up for. ``offset``: the norm multiplies by 1 + its weight.
    """
    one = float(offset)
    stored = (weight / scales - one).to(dtype)
    divided = stored.float() + one
    sound = (divided != 0) & (weight != 0)
    stored = torch.where(sound, stored, (weight - one).to(dtype))
    return stored, torch.where(sound, weight / divided, 1.0)

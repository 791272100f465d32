"""GPTQ (Frantar et al. 2022): rounding column by column, the others making up for the error of each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.services.quantise.grid import Grid, GroupedWeights
from engine.services.training.errors import RecipeError

BLOCK = 128
"""Columns whose errors are passed on within the block first, and to the others at once."""
DAMPING = (0.01, 0.1, 1.0)
"""Shares of the mean diagonal that are added to it: the first with which the matrix can be inverted."""


class GPTQSettings(NamedTuple):
    """``group`` divides K. ``act_order``: columns of large inputs first. ``static_groups``: groups are runs of input
    features nevertheless, their scales chosen beforehand."""

    grid: Grid
    group: int
    act_order: bool = True
    static_groups: bool = True


class Solver:
    """State shared by the modules that read one input: the inverse of their Hessian, and the order of columns."""

    def __init__(self, hessian: Tensor, settings: GPTQSettings) -> None:
        """``hessian [K, K]`` float32, the mean of ``2 x x^T`` over the calibration's inputs, is left as it is."""
        self.settings = settings
        diagonal = hessian.diagonal()
        self._dead = diagonal == 0
        self._importance = diagonal
        order = torch.arange(len(hessian), device=hessian.device)
        self._order = diagonal.argsort(descending=True, stable=True) if settings.act_order else order
        ordered = hessian[self._order][:, self._order]
        ordered.diagonal()[self._dead[self._order]] = 1.0
        self._inverse = _inverse_root(ordered)

    def quantised(self, weight: Tensor) -> GroupedWeights:
        """``weight [N, K]`` float32 quantised; it is left as it is."""
        grid, group, _, static = self.settings
        rows, columns = weight.shape
        work = weight.masked_fill(self._dead, 0.0)
        importance, order, group_of = (
            self._importance,
            self._order,
            torch.arange(columns, device=weight.device) // group,
        )
        scales = work.new_empty(rows, columns // group)
        zeros = torch.empty_like(scales)
        if static:
            scales, zeros = grid.fit(work.view(rows, -1, group), importance.view(-1, group))
        work, importance = work[:, order], importance[order]
        # Without an order of its own, or with groups that follow the order, groups are runs of ordered columns.
        groups = (group_of[order] if static else group_of).tolist()
        codes = torch.empty_like(work)
        step = BLOCK if group % BLOCK == 0 else group
        for start in range(0, columns, step):
            stop = min(start + step, columns)
            block, errors = work[:, start:stop].clone(), work.new_empty(rows, stop - start)
            inverse = self._inverse[start:stop, start:stop]
            for i in range(stop - start):
                place = start + i
                at = groups[place]
                if not static and place % group == 0:
                    # Groups begin where blocks do, so all errors so far have been passed on to it.
                    scales[:, at], zeros[:, at] = grid.fit(
                        work[:, place : place + group], importance[place : place + group]
                    )
                column = block[:, i : i + 1]
                found = grid.codes(column, scales[:, at], zeros[:, at])
                rounded = (found - zeros[:, at : at + 1]) * scales[:, at : at + 1]
                error = (column - rounded) / inverse[i, i]
                block[:, i + 1 :] -= error * inverse[i, i + 1 :]
                codes[:, place : place + 1], errors[:, i : i + 1] = found, error
            work[:, stop:] -= errors @ self._inverse[start:stop, stop:]
        back = torch.empty_like(order)
        back[order] = torch.arange(columns, device=order.device)
        of_feature = group_of if static else group_of[back]
        return GroupedWeights(grid, codes[:, back].to(torch.uint8), scales.half(), zeros.to(torch.uint8), of_feature)


def _inverse_root(hessian: Tensor) -> Tensor:
    """The upper Cholesky factor of the inverse of ``hessian`` with a damped diagonal."""
    mean = hessian.diagonal().mean()
    for share in DAMPING:
        damped = hessian.clone()
        damped.diagonal().add_(share * mean)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if failed:
            continue
        upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
        if not failed and bool(torch.isfinite(upper).all()):
            return upper
    raise RecipeError(
        "The model computes values that are not numbers on the calibration text, so it cannot be quantised by GPTQ. "
        "Check the model with another text, or choose another format."
    )

"""The rotation of a step's rows, and how it is applied to queries and keys."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.native.library import NativeLibrary


class RotaryStep(NamedTuple):
    """One step's rotation, made once and used by every layer: ``cos`` and ``sin [T, 1, r]``, r dimensions.

    The first half of ``sin`` is negated, so that rotating is ``x * cos + swap_halves(x) * sin``.
    """

    cos: Tensor
    sin: Tensor
    library: NativeLibrary | None = None
    """Native code that rotates, where there is some."""


def rotate(x: Tensor, step: RotaryStep) -> Tensor:
    """Rotate the first dimensions of every head of ``x [T, heads, d]`` to its row's position; a new tensor.

    Products and the sum are separate, each exactly rounded, so that a row's bits do not depend on its neighbours.
    """
    turned = None if step.library is None else step.library.rotate(x, step.cos, step.sin)
    if turned is not None:
        return turned
    width = step.cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], step), x[..., width:]), -1)
    return torch.mul(x, step.cos).add_(torch.roll(x, x.shape[-1] // 2, -1).mul_(step.sin))

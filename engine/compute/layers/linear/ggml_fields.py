"""Functions that read the bytes of a block, whatever its type (see ggml_blocks.py)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Decoded(NamedTuple):
    """Codes ``[n, weights]`` (uint8 or int8); scale and offset ``[n, groups]`` float32, for equal runs of weights."""

    codes: Tensor
    scale: Tensor
    offset: Tensor | None = None


def fields(packed: Tensor, width: int, bits: int) -> Tensor:
    """``packed [n, m]`` bytes of several fields of ``bits``, the lowest first -> ``[n, 8 m / bits]`` uint8.

    The order is that of ggml: of every ``width`` bytes first all lowest fields, then all next ones.
    """
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)[:, None]
    fields = packed.reshape(packed.shape[0], -1, 1, width) >> shifts
    return fields.bitwise_and_((1 << bits) - 1).view(packed.shape[0], -1)


def half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte ``at`` of every block, ``[n, 1]`` float32."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def signed(codes: Tensor, minus: int) -> Tensor:
    return codes.view(torch.int8) - minus

"""Memory of what native code and its callers write within a step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.base.host_memory import RESULTS
from engine.compute.native.tape import current

LEAST = 1 << 20
"""Bytes of the results that are worth it outside tapes, whose memory is looked for once."""


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor on the CPU, not to be read before it is written. Raises MemoryError."""
    if (tape := current()) is not None:
        return tape.pool.empty(shape, dtype)
    if math.prod(shape) * dtype.itemsize < LEAST:
        return torch.empty(shape, dtype=dtype)
    return RESULTS.empty(shape, dtype)

"""LongRoPE (Ding et al. 2024): one set of factors up to the original context, another beyond it.

The set belongs to a sequence, not to a row: once a sequence is longer than the original context, transformers rotates
all of it by the long factors. A step goes by the sequence's length after it, so a prompt read in one step is rotated as
transformers does, and so is every step of a sequence that stays on one side. What crosses the boundary while its keys
are cached keeps those of the short factors, whose distances to the new queries are then wrong (in transformers a
forward with a cache does the same, and ``generate`` computes the whole cache anew). So who caches keys keeps sequences
on one side, or drops a sequence's keys when it crosses and reads it again in one step.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engine.compute.attention.rotation import RotaryStep
from engine.compute.batch import Batch
from engine.compute.layers.rotary import RotaryEmbedding
from engine.config.positions import RopeConfig


class LongRotaryEmbedding:
    """Two rotations, chosen for each row by the length of its sequence."""

    def __init__(
        self, config: RopeConfig, head_dim: int, max_position: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.boundary = config.original_max_position
        self.short = RotaryEmbedding(config, head_dim, max_position, dtype, device)
        beyond = replace(config, factors=config.long_factors)
        self.long = RotaryEmbedding(beyond, head_dim, max_position, dtype, device)

    def step(self, batch: Batch, positions: Tensor | None = None) -> RotaryStep:
        """Same as :meth:`RotaryEmbedding.step`; nothing is read from the device."""
        at = batch.positions if positions is None else positions
        short, long = self.short.at(at, batch.host.max_kv), self.long.at(at, batch.host.max_kv)
        beyond = (_lengths(batch) > self.boundary)[:, None, None]
        return RotaryStep(torch.where(beyond, long.cos, short.cos), torch.where(beyond, long.sin, short.sin))

    @property
    def generation(self) -> int:
        """Sum of the generations of both tables, used as that of a :class:`RotaryEmbedding`."""
        return self.short.generation + self.long.generation

    def reserve(self, positions: int) -> None:
        """Same as :meth:`RotaryEmbedding.reserve`, for both tables."""
        self.short.reserve(positions)
        self.long.reserve(positions)

    def storage_size(self) -> int:
        return self.short.storage_size() + self.long.storage_size()


def _lengths(batch: Batch) -> Tensor:
    """``[T]``: the keys of each row's sequence, this step's included; padding rows get any sequence's."""
    rows = torch.arange(batch.positions.shape[0], device=batch.positions.device)
    sequence = torch.searchsorted(batch.row_start[1:].long(), rows, right=True)
    return batch.kv_len.index_select(0, sequence.clamp_(max=batch.kv_len.shape[0] - 1))

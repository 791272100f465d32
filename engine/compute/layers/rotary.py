"""Rotary position embedding (Su et al. 2021) in the half-split form, and its context extensions.

Kinds: "default"; "linear" (position interpolation, Chen et al. 2023); "llama3" (the Llama 3.1 release);
"yarn" (Peng et al. 2023); "longrope" (Ding et al. 2024, see longrope.py). The formulas and the float32
arithmetic are those of Hugging Face configurations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.compute.attention.rotation import RotaryStep, TableRotaryStep
from engine.compute.batch import Batch
from engine.compute.native.library import find
from engine.config.positions import RopeConfig

FIRST_ROWS = 2048
"""Rows of the cos/sin table made at first; it doubles when a longer sequence comes."""


class RotaryEmbedding:
    """Tables of a model's rotation, grown as sequences do."""

    def __init__(
        self, config: RopeConfig, head_dim: int, max_position: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.dtype, self.max_position = dtype, max_position
        self.frequencies, self.scale = inverse_frequencies(config, head_dim)
        self.frequencies = self.frequencies.to(device)
        self._axis = axis_of(config, self.frequencies.shape[0]).to(device)
        self._library = find().library if device.type == "cpu" else None
        self._table = self._build(min(FIRST_ROWS, max_position))
        self.generation = 0

    def step(self, batch: Batch, positions: Tensor | None = None) -> RotaryStep:
        """The rotation of the rows of a batch, at its positions or at others ``[T]`` below ``max_kv``."""
        if positions is None and batch.axes is not None:
            return self.at_axes(batch.axes, batch.host.max_kv)
        return self.at(batch.positions if positions is None else positions, batch.host.max_kv)

    def at(self, positions: Tensor, limit: int) -> RotaryStep:
        """The rotation at ``positions [T]`` int64, all below ``limit`` (known to the host)."""
        self._reach(limit)
        return TableRotaryStep(self._table, positions, self._library)

    def at_axes(self, axes: Tensor, limit: int) -> RotaryStep:
        """The rotation at ``axes [3, T]`` int64, time, row and column: each pair of dimensions turns by one of them
        (Qwen2-VL, Wang et al. 2024, section 2.1)."""
        self._reach(limit)
        found = self._table.index_select(0, axes.flatten())
        time, row, column = found.view(3, axes.shape[1], *self._table.shape[1:])
        rows = torch.where(self._axis == 1, row, torch.where(self._axis == 2, column, time))
        return RotaryStep(rows[:, :1], rows[:, 1:], self._library)

    def _reach(self, limit: int) -> None:
        """Let the table grow where it ends before ``limit``."""
        if limit > self._table.shape[0]:
            # Beyond the model's own length (a sliding window goes on for ever) it grows by steps.
            beyond = limit + FIRST_ROWS if limit > self.max_position else limit
            self.reserve(max(beyond, min(2 * self._table.shape[0], self.max_position)))

    def reserve(self, positions: int) -> None:
        """Implements :meth:`engine.compute.layers.interface.Rotary.reserve`."""
        if positions > self._table.shape[0]:
            self._table = self._build(positions)
            self.generation += 1

    def _build(self, rows: int) -> Tensor:
        """``[rows, 2, d]``: cos and signed sin of every position."""
        if self.frequencies.is_meta:
            return torch.empty(rows, 2, 2 * self.frequencies.shape[0], dtype=self.dtype, device="meta")
        angle = torch.arange(rows, device=self.frequencies.device, dtype=torch.float32)[:, None] * self.frequencies
        cos, sin = angle.cos() * self.scale, angle.sin() * self.scale
        table = torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), 1)
        return table.to(self.dtype)

    def storage_size(self) -> int:
        return self._table.nbytes


def halves_of_pairs(x: Tensor) -> Tensor:
    """Heads whose pairs of neighbours rotate -> as :func:`rotate` wants them, ``x [T, heads, d]``.

    The rotated heads stay in that order: where queries and keys both do, no product of them changes.
    """
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def axis_of(config: RopeConfig, pairs: int) -> Tensor:
    """``[2 * pairs]``: which axis each dimension turns by, 0 time, 1 row, 2 column (all time without sections)."""
    index = torch.arange(pairs)
    if config.interleaved:  # Qwen3-VL: t h w t h w ..., as long as each section goes on
        ends = torch.tensor([3 * size for size in config.sections])
        axis = torch.where(index < ends[index % 3], index % 3, 0)
    else:  # Qwen2-VL: one section after the other
        ends = torch.tensor(config.sections or (pairs,)).cumsum(0)
        axis = torch.searchsorted(ends, index, right=True).clamp(max=2)
    return torch.cat((axis, axis))


def inverse_frequencies(config: RopeConfig, head_dim: int) -> tuple[Tensor, float]:
    """Radians per position, float32, one for each pair of dimensions that rotates; and the factor on cos and sin."""
    width = config.width(head_dim)
    powers = config.theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    if config.factors:
        powers = powers * torch.tensor(config.factors, dtype=torch.float32)
    frequencies = 1.0 / powers
    if config.kind == "linear":
        return frequencies / config.factor, 1.0
    if config.kind == "llama3":
        return _llama3(config, frequencies), 1.0
    if config.kind == "yarn":
        return _yarn(config, width, powers), _attention_factor(config)
    if config.kind == "longrope":
        return frequencies, _attention_factor(config)
    return frequencies, 1.0


def _llama3(config: RopeConfig, frequencies: Tensor) -> Tensor:
    """Long wavelengths are slowed by the factor, short ones kept, those between blended."""
    wavelength = 2 * math.pi / frequencies
    low = config.original_max_position / config.low_freq_factor
    high = config.original_max_position / config.high_freq_factor
    span = config.high_freq_factor - config.low_freq_factor
    blend = (config.original_max_position / wavelength - config.low_freq_factor) / span
    slowed = torch.where(wavelength > low, frequencies / config.factor, frequencies)
    smooth = (1 - blend) * slowed / config.factor + blend * slowed
    between = ~(wavelength < high) & ~(wavelength > low)
    return torch.where(between, smooth, slowed)


def _yarn(config: RopeConfig, head_dim: int, powers: Tensor) -> Tensor:
    """Slow the dimensions that turn fewer than beta_slow times in the original context, keep those past beta_fast."""

    def dimension(rotations: float) -> float:
        turns = config.original_max_position / (rotations * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(config.theta))

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    keep = 1 - ramp
    return 1.0 / (config.factor * powers) * (1 - keep) + 1.0 / powers * keep


def softmax_scale(config: RopeConfig) -> float:
    """Factor by which DeepSeek's families multiply q·k besides, for their extended context (1 where there is none)."""
    if config.kind == "default" or not config.mscale_all_dim:
        return 1.0
    return _mscale(config.factor, config.mscale_all_dim) ** 2


def _mscale(scale: float, weight: float = 1.0) -> float:
    return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0


def _attention_factor(config: RopeConfig) -> float:
    """Factor of cosines and sines for "longrope" or "yarn"."""
    if config.attention_factor is not None:
        return config.attention_factor
    if config.kind == "longrope":
        if config.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(config.factor) / math.log(config.original_max_position))
    if config.mscale and config.mscale_all_dim:
        return _mscale(config.factor, config.mscale) / _mscale(config.factor, config.mscale_all_dim)
    return _mscale(config.factor)

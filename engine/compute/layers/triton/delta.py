"""The gated delta rule on a GPU, one kernel a layer for few rows and two for more: launched where they have proved
themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.states import LayerStates, StateRuns
from engine.cache.stores.transfer import on_device
from engine.compute.batch import power_of_two
from engine.compute.layers.numerics import Numerics
from engine.compute.native.delta import DeltaWeights
from engine.compute.native.proof import machine_declines, tried
from engine.compute.native.triton_launch import Variants
from engine.config.states import RecurrentShape

WIDEST = 256
"""Numbers of a key or a value."""
PART, WARPS = 32, 4
"""Columns of a head's matrix that a program holds in registers, and the warps that share them..."""
ROWS, WHOLE, WHOLE_WARPS = 8, 128, 8
"""... and of a step of at most so many rows, whose programs have whole heads and normalise them: that is a kernel less,
but a head of a long prompt would keep one multiprocessor busy while others have nothing to do."""
TOLERANCE = 0.02
"""Share of the largest value by which results may differ."""
_variants = Variants()


class _Places:
    """The table of a step's runs on the device, and where sequences begin in it: made once, for all layers."""

    def __init__(self) -> None:
        self._last: tuple[np.ndarray, Tensor] | None = None

    def of(self, runs: np.ndarray, device: torch.device) -> Tensor:
        """``runs`` as in `StateRuns`, one after another, then the first run of each sequence, and how many runs there
        are."""
        last = self._last
        if last is None or last[0] is not runs or last[1].device != device:
            begins = np.append(np.flatnonzero(runs[:, 4]), len(runs))
            self._last = last = runs, on_device(device, np.concatenate((runs.ravel(), begins)).astype(np.int64))
        return last[1]


_places = _Places()


Definition = Callable[[Tensor, Tensor, DeltaWeights, RecurrentShape, LayerStates, StateRuns, Numerics], Tensor]
"""Definition that the kernels are compared with: :func:`engine.compute.layers.recurrent.delta_rule.by_torch`."""


def declines(
    shape: RecurrentShape, runs: StateRuns, dtype: torch.dtype, device: torch.device, definition: Definition
) -> str | None:
    """Reason torch computes a step; None where the kernel does."""
    if runs.parents is not None:
        return "rows of a drafted tree go on from states of their own"
    if ((runs.runs[:, 2] == runs.runs[:, 3]) & (runs.runs[:, 3] > 0)).any():
        return "a state is written where it is read"
    return disagrees(shape, dtype, device, definition)


@functools.cache
def disagrees(shape: RecurrentShape, dtype: torch.dtype, device: torch.device, definition: Definition) -> str | None:
    """Reason torch computes layers of this shape; None where the kernel is to be trusted."""
    for width in (shape.key, shape.value):
        if width > WIDEST or width % 16 or width % min(PART, width):
            return f"it has no heads of {width} numbers"
    return machine_declines(dtype, device) or tried(
        ("delta", shape, dtype), device, lambda: compare(shape, dtype, device, definition)
    )


def normalises(shape: RecurrentShape, rows: int) -> bool:
    """Return True if the kernel of the rule normalises and gates what it reads, too."""
    return rows <= ROWS and shape.value <= WHOLE and power_of_two(shape.value) == shape.value


def delta_rule(
    mixed: Tensor,
    gates: Tensor,
    weights: DeltaWeights,
    shape: RecurrentShape,
    states: LayerStates,
    table: StateRuns,
    whole: bool | None = None,
) -> Tensor:
    """Same as :func:`engine.compute.layers.recurrent.delta_rule.delta_rule`, where :func:`declines` gives None.

    ``whole``: programs have whole heads; None: where :func:`normalises` says so.
    """
    from engine.compute.layers.triton import delta_kernels

    mixed, gates = mixed.contiguous(), gates.contiguous()
    heads, value = shape.value_heads, shape.value
    rows, places = int(table.runs[-1, 1]), _places.of(table.runs, mixed.device)
    sequences = places.numel() - table.runs.size - 1
    whole = normalises(shape, rows) if whole is None else whole
    part, warps = (value, WHOLE_WARPS) if whole else (min(PART, value), WARPS)
    out = mixed.new_empty(mixed.shape[0], heads * value)
    if rows < mixed.shape[0]:
        out[rows:] = 0
    read = None if whole else mixed.new_empty(rows, heads * value, dtype=torch.float32)

    def of_rule() -> dict[str, Any]:
        sizes = {"KEY": shape.key, "KEY_LANES": power_of_two(shape.key), "VALUE": value, "PART": part}
        traits = {"TAPS": shape.kernel, "TILED": shape.tiled, "CHANNEL_DECAYS": shape.channel_decays, "NORMED": whole}
        return {**sizes, **traits, "num_warps": warps}

    by = weights.convolution, weights.decay, weights.bias
    arenas = states.tails, states.matrices, places, places[table.runs.size :]
    grid, key = (heads, value // part, sequences), (mixed.dtype, shape, table.runs.size % 2, whole)
    results = (weights.norm, out) if whole else (None, None)
    numbers = weights.eps, shape.key_heads, heads, weights.unit_eps, shape.share_scale
    _variants.launch(
        delta_kernels.delta_rule, key, grid, (mixed, gates, read, *by, *arenas, *results, *numbers), of_rule
    )
    if read is None:
        return out

    def of_norm() -> dict[str, Any]:
        return {"VALUE": value, "LANES": power_of_two(value), "SILU": not shape.channel_decays, "num_warps": 1}

    args = read, mixed, weights.norm, out, shape.channels, heads, weights.eps
    _variants.launch(delta_kernels.gated_norm, (mixed.dtype, shape), (rows, heads, 1), args, of_norm)
    return out


def compare(shape: RecurrentShape, dtype: torch.dtype, device: torch.device, definition: Definition) -> str | None:
    """Reason the kernel is wrong on a few sequences: one that begins, one that continues, one cut in two with draft
    tokens; None where it agrees with ``definition``."""
    generator = torch.Generator().manual_seed(1)

    def some(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator)

    heads, values = shape.value_heads, shape.value_heads * shape.value
    by = some(shape.kernel, shape.channels), -some(heads).abs(), some(shape.decays), some(shape.value)
    weights = DeltaWeights(*by, 1e-6)
    tails, matrices = some(6, shape.kernel - 1, shape.channels).to(dtype), some(6, heads, shape.key, shape.value)
    mixed, gates = some(9, shape.channels + values).to(dtype), some(9, heads + shape.decays).to(dtype)
    runs = [[0, 3, 0, 1, 1], [3, 4, 2, 3, 1], [4, 6, 4, 5, 1], [6, 9, 5, 0, 0]]
    table = StateRuns(np.array(runs, dtype=np.int64))
    expected = LayerStates(tails.float(), matrices.clone())
    read = definition(mixed.float(), gates.float(), weights, shape, expected, table, Numerics(True))
    there = weights.to(device)
    for whole in {False, normalises(shape, 1)}:
        states = LayerStates(tails.to(device, copy=True), matrices.to(device, copy=True))
        found = delta_rule(mixed.to(device), gates.to(device), there, shape, states, table, whole)
        pairs = (found, read), (states.matrices, expected.matrices), (states.tails, expected.tails)
        if any(_far(one, other) for one, other in pairs):
            return "what it reads and keeps does not agree with the definition here"
    return None


def _far(found: Tensor, expected: Tensor) -> bool:
    """NaN counts as far."""
    return not bool((found.float().cpu() - expected).abs().max() <= TOLERANCE * expected.abs().max())

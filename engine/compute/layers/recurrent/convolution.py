"""A causal convolution of each channel over the last few tokens of a sequence, whose state is its last inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.states import StateRuns
from engine.cache.stores.transfer import on_device
from engine.compute.native.library import NativeLibrary


def convolve(
    inputs: Tensor, taps: Tensor, tails: Tensor, runs: StateRuns, library: NativeLibrary | None = None
) -> Tensor:
    """``inputs [T, channels]`` of the rows of ``runs`` -> sums of products in float32, alike.

    ``taps [kernel, channels]`` float32, that of the present token last. ``tails [slots, kernel - 1, channels]`` are
    read at the runs' sources and written at their targets. Products are added in the order of tokens, whatever the
    batch; by native code to the same bits.
    """
    if library is not None and (found := library.convolve(inputs, taps, tails, runs)) is not None:
        return found
    kernel, places = len(taps), runs.table.tolist()
    if begin_alone(runs, len(inputs)):
        return _single_rows(inputs, taps, tails, runs)
    out = inputs.new_empty(inputs.shape, dtype=torch.float32)
    for first, stop, source, target, _ in places:
        rows, parents = torch.cat((tails[source], inputs[first:stop])), tree_of(runs, first, stop)
        if parents is None:
            seen = [rows[at : at + stop - first] for at in range(kernel)]
        else:
            taken = on_device(rows.device, np.array(_paths(parents, kernel)))
            seen = [rows.index_select(0, taken[:, at]) for at in range(kernel)]
        out[first:stop] = _summed(seen, taps)
        if target:
            tails[target] = rows[len(rows) - kernel + 1 :]
    return out


def _single_rows(inputs: Tensor, taps: Tensor, tails: Tensor, runs: StateRuns) -> Tensor:
    """All sequences have one row: together."""
    sources, targets, kept = places_of(runs.runs, inputs.device)
    rows = torch.cat((tails.index_select(0, sources), inputs[:, None]), 1)
    tails.index_copy_(0, targets, rows[:, 1:] if len(kept) == len(rows) else rows.index_select(0, kept)[:, 1:])
    return _summed(list(rows.unbind(1)), taps)


def begin_alone(runs: StateRuns, rows: int) -> bool:
    """Return True if each run of a step is one row of a sequence of its own, so that none reads what another writes."""
    return len(runs.table) == rows and bool(runs.table[:, 4].all())


def places_of(runs: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The sources of ``runs [R, 5]``, the targets of those that leave a state, and which of them do: int64."""
    kept = runs[:, 3].nonzero()[0]
    places = on_device(device, np.concatenate((runs[:, 2], runs[kept, 3], kept)))
    sources, targets, of = places.split((len(runs), len(kept), len(kept)))
    return sources, targets, of


def _summed(seen: list[Tensor], taps: Tensor) -> Tensor:
    out = seen[0].float() * taps[0]
    for rows, tap in zip(seen[1:], taps[1:], strict=True):
        out += rows.float() * tap
    return out


def tree_of(runs: StateRuns, first: int, stop: int) -> list[int] | None:
    """Parent of each row of a run, as a row of the run, -1 for the run's source; None where the run is a chain."""
    if runs.parents is None:
        return None
    parents = [int(row) - first if row >= 0 else -1 for row in runs.parents[first:stop]]
    return None if parents == list(range(-1, stop - first - 1)) else parents


def _paths(parents: list[int], kernel: int) -> list[list[int]]:
    """Indices of the convolution's inputs of each tree row, oldest first, among the tail and then the run's rows."""
    found: list[list[int]] = []
    for row in range(len(parents)):
        path, at = list[int](), row
        while len(path) < kernel and at >= 0:
            path.append(kernel - 1 + at)
            at = parents[at]
        path += range(kernel - 2, -1, -1)
        found.append(path[kernel - 1 :: -1])
    return found

"""State space duality with one decay a head (Dao and Gu 2024, arXiv 2405.21060): what Mamba2 does within a layer.

A head carries a matrix S [state, width]. Token t brings an input x and a step d > 0; the heads of a group share vectors
B and C [state], which take the places of keys and queries:

    S <- e^(d A) S + B (d x)^T;   y = S^T C + D x

with numbers A < 0 and D of each head. Before that x, B and C pass a causal convolution of few tokens and a SiLU. Here
are both forms of engine/compute/layers/recurrent/recurrence.py: row by row, and by chunks (section 6 of the paper).
`engine/compute/native/state_space.c` is the former for processors.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache.stores.states import LayerStates, StateRuns
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent.convolution import convolve
from engine.compute.layers.recurrent.recurrence import CHUNK, Rows, Rule, decays_of, read_through
from engine.compute.native.library import NativeLibrary
from engine.compute.native.state_space import MambaWeights
from engine.config.states import MambaShape


def state_space(
    mixed: Tensor,
    steps: Tensor,
    weights: MambaWeights,
    shape: MambaShape,
    states: LayerStates,
    runs: StateRuns,
    numerics: Numerics,
    library: NativeLibrary | None = None,
) -> Tensor:
    """y of the rows of ``runs``, ``[rows, heads, width]`` float32; the states are moved on.

    ``mixed [T, channels]``: x, B and C before the convolution; ``steps [T, heads]``: what the steps are made from.
    """
    count, sizes = runs.rows, (shape.inner, *[shape.groups * shape.state] * 2)
    inputs, taps, added = mixed[:count], weights.convolution, weights.convolution_bias
    seen = library.convolve(inputs, taps, states.tails, runs, added, silu=True) if library is not None else None
    if seen is None:
        seen = convolve(inputs, taps, states.tails, runs)
        seen = numerics.by_row(F.silu, seen if added is None else seen + added)
    if library is not None:
        found = library.state_space(seen, steps[:count], weights, shape, states.matrices, runs)
        if found is not None:
            return found
    x, b, c = seen.split(sizes, 1)
    b, c = (each.unflatten(1, (shape.groups, shape.state)) for each in (b, c))
    x = x.unflatten(1, (shape.heads, shape.width))
    d = numerics.by_row(F.softplus, steps[:count].float() + weights.bias).clamp(*shape.limits)
    rows = c, b, x * d[..., None], d * weights.decay
    return read_through(rows, states.matrices, runs, RULE, numerics) + x * weights.skip[:, None]


def step(rows: Rows, state: Tensor) -> tuple[Tensor, Tensor]:
    """S^T C and the next S; see :class:`engine.compute.layers.recurrent.recurrence.Rule`."""
    c, b, v, g = rows
    c, b = (each.repeat_interleave(g.shape[-1] // each.shape[-2], -2)[..., None] for each in (c, b))
    moved = state * g.exp()[..., None, None]
    moved += b * v[..., None, :]
    return (moved * c).sum(-2), moved


def by_chunks(rows: Rows, state: Tensor) -> tuple[Tensor, Tensor]:
    """S^T C of a chain of rows, and S after the last.

    Within a chunk, with G the sum of the decays up to a row and D_ij = e^(G_i - G_j) for j <= i, what is read is
    e^G C S + lower(C B^T D) d X.
    """
    out, each = torch.empty_like(rows[2]), rows[2].shape[1] // rows[0].shape[1]
    for first in range(0, len(out), CHUNK):
        c, b, v, g = (x[first : first + CHUNK].transpose(0, 1) for x in rows)  # [groups or heads, rows, ...]
        sums, decays = decays_of(g)
        scores = (c @ b.mT).repeat_interleave(each, 0) * decays
        c, b = (x.repeat_interleave(each, 0) for x in (c, b))
        out[first : first + CHUNK] = (sums.exp()[:, :, None] * (c @ state) + scores @ v).transpose(0, 1)
        last = sums[:, -1:]
        state = last.exp()[:, :, None] * state + ((last - sums).exp()[:, :, None] * b).mT @ v
    return out, state


RULE = Rule(step, by_chunks)

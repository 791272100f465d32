"""The gated delta rule (Yang et al. 2024, arXiv 2412.06464): what replaces attention in most layers of Qwen3-Next.

A head carries a matrix S [key, value]. Token t brings a key k and a query q of unit length, a value v, a decay
a = e^g <= 1 and a share b:

    S <- a S;   S <- S + k (b (v - S^T k))^T;   o = S^T q / sqrt(key)

so that S forgets by a, and what it says of k moves by the share b towards v. Before that queries, keys and values
pass a causal convolution of few tokens and a SiLU; afterwards o is normalised and gated. In Kimi Delta Attention (Kimi
Team 2025, arXiv 2510.26692) each channel of a key has an a of its own: S <- Diag(a) S.

Here are the reference forms in torch (recurrence.py): row by row, and by chunks of 64 rows for prompts
(section 3.3 of the paper).
`engine/compute/native/delta.c` is the row by row form for processors, `engine/compute/layers/triton/delta_kernels.py`
that for GPUs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache.stores.states import LayerStates, StateRuns
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.recurrent.convolution import convolve
from engine.compute.layers.recurrent.recurrence import CHUNK, Rows, Rule, decays_of, read_through
from engine.compute.layers.triton import delta
from engine.compute.native.delta import DeltaWeights
from engine.compute.native.library import NativeLibrary
from engine.config.states import RecurrentShape

CHANNEL_CHUNK = 16
"""Rows of a chunk where channels have decays of their own: between all pairs of them all channels are at hand."""


class _StepRows(NamedTuple):
    """Inputs of a step's rows: q and k [T, value_heads, key], v [T, value_heads, value], decays in log space g and
    shares b [T, value_heads], all float32. Where channels have decays of their own g is like k."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    b: Tensor


def delta_rule(
    mixed: Tensor,
    gates: Tensor,
    weights: DeltaWeights,
    shape: RecurrentShape,
    states: LayerStates,
    runs: StateRuns,
    numerics: Numerics,
    library: NativeLibrary | None = None,
) -> Tensor:
    """Reads of a layer's rows from its states, which they update: ``[T, value_heads * value]`` in the dtype of mixed.

    ``mixed [T, channels + value_heads * value]``: queries, keys and values before the convolution, then what gates the
    result. ``gates [T, value_heads + decays]``: what shares are made from, then decays. T may exceed the rows of
    ``runs``: results of such rows are zeros.
    """
    if library is not None:
        found = library.delta_rule(mixed, gates, weights, shape, states, runs)
        if found is not None:
            return found
    fast = mixed.is_cuda and not numerics.batch_invariant
    if fast and delta.declines(shape, runs, mixed.dtype, mixed.device, by_torch) is None:
        return delta.delta_rule(mixed, gates, weights, shape, states, runs)
    return by_torch(mixed, gates, weights, shape, states, runs, numerics)


def by_torch(
    mixed: Tensor,
    gates: Tensor,
    weights: DeltaWeights,
    shape: RecurrentShape,
    states: LayerStates,
    runs: StateRuns,
    numerics: Numerics,
) -> Tensor:
    """The definition of :func:`delta_rule`."""
    out = mixed.new_zeros(mixed.shape[0], shape.value_heads * shape.value)
    count = runs.rows
    inputs, z = mixed[:count].split((shape.channels, out.shape[1]), 1)
    q, k, v = _convolved(inputs, weights, shape, states.tails, runs, numerics)
    b, a = gates[:count].float().split((shape.value_heads, shape.decays), 1)
    g = numerics.by_row(F.softplus, a + weights.bias).unflatten(1, (shape.value_heads, -1)) * weights.decay[:, None]
    b = numerics.by_row(torch.sigmoid, b) * shape.share_scale
    rows = _StepRows(q, k, v, g if shape.channel_decays else g[..., 0], b)
    read = read_through(rows, states.matrices, runs, RULE, numerics)
    normed = numerics.by_row(lambda x: F.rms_norm(x, (shape.value,), weights.norm, weights.eps), read)
    out[:count] = normed.flatten(1) * numerics.by_row(torch.sigmoid if shape.channel_decays else F.silu, z.float())
    return out


def _convolved(
    inputs: Tensor, weights: DeltaWeights, shape: RecurrentShape, tails: Tensor, runs: StateRuns, numerics: Numerics
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys of unit length and values; the tails after the runs are written."""
    mixed = numerics.by_row(F.silu, convolve(inputs, weights.convolution, tails, runs))
    keys = shape.key_heads * shape.key
    q, k, v = mixed.split((keys, keys, shape.value_heads * shape.value), 1)
    each = shape.value_heads // shape.key_heads

    def heads(x: Tensor) -> Tensor:
        x = x.unflatten(1, (shape.key_heads, shape.key))
        x = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + weights.unit_eps)
        return x.repeat(1, each, 1) if shape.tiled else x.repeat_interleave(each, 1)

    return heads(q) * shape.key**-0.5, heads(k), v.unflatten(1, (shape.value_heads, shape.value))


def step(rows: Rows, state: Tensor) -> tuple[Tensor, Tensor]:
    """o and the next S; see :class:`engine.compute.layers.recurrent.recurrence.Rule`."""
    q, k, v, g, b = rows
    decayed = state * g.exp().view(*b.shape, -1, 1)
    said = (decayed * k[..., None]).sum(-2)
    moved = decayed + k[..., None] * ((v - said) * b[..., None])[..., None, :]
    return (moved * q[..., None]).sum(-2), moved


def by_chunks(rows: Rows, state: Tensor) -> tuple[Tensor, Tensor]:
    """o of a chain of rows, and the state after the last.

    Within a chunk, with G the sum of the decays up to a row and D_ij = e^(G_i - G_j) for j <= i, what the rows write is
    W = (1 + strictly lower(b K K^T D))^-1 b (V - e^G K S), and o = e^G Q S + lower(Q K^T D) W.
    """
    if rows[3].ndim == rows[1].ndim:
        return by_chunks_of_channels(rows, state)
    out = torch.empty_like(rows[2])
    for first in range(0, len(out), CHUNK):
        q, k, v, g, b = (each[first : first + CHUNK].transpose(0, 1) for each in rows)  # [heads, rows, ...]
        sums, decays = decays_of(g)
        since = sums.exp()[:, :, None]
        system = b[:, :, None] * (k @ k.mT) * decays
        wanted = b[:, :, None] * (v - since * (k @ state))
        written = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        read = since * (q @ state) + ((q @ k.mT) * decays) @ written
        out[first : first + CHUNK] = read.transpose(0, 1)
        last = sums[:, -1:]
        state = last.exp()[:, :, None] * state + ((last - sums).exp()[:, :, None] * k).mT @ written
    return out, state


def by_chunks_of_channels(rows: Rows, state: Tensor) -> tuple[Tensor, Tensor]:
    """Same as :func:`by_chunks`, D_ij being a number for each channel, which the products K K^T and Q K^T sum over."""
    out = torch.empty_like(rows[2])
    for first in range(0, len(out), CHANNEL_CHUNK):
        q, k, v, g, b = (each[first : first + CHANNEL_CHUNK].transpose(0, 1) for each in rows)
        sums = g.cumsum(1)  # [heads, rows, key]
        later = torch.ones(g.shape[1], g.shape[1], dtype=torch.bool, device=g.device).triu(1)
        decays = (sums[:, :, None] - sums[:, None]).masked_fill(later[..., None], -torch.inf).exp()
        keys = decays * k[:, None]  # [heads, row, row before it, key]
        system = b[:, :, None] * (keys @ k[..., None])[..., 0]
        wanted = b[:, :, None] * (v - (sums.exp() * k) @ state)
        written = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        read = (sums.exp() * q) @ state + (keys @ q[..., None])[..., 0] @ written
        out[first : first + CHANNEL_CHUNK] = read.transpose(0, 1)
        last = sums[:, -1:]
        state = last.mT.exp() * state + ((last - sums).exp() * k).mT @ written
    return out, state


RULE = Rule(step, by_chunks)

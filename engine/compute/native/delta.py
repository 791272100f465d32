"""Structures that describe a layer and a step to `delta.c`."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.stores.states import LayerStates
from engine.compute.native.attention import fields
from engine.compute.native.runs import RunTables
from engine.config.states import RecurrentShape


class DeltaWeights(NamedTuple):
    """Weights of a layer besides its linear layers, all in float32."""

    convolution: Tensor
    """[kernel, channels], the oldest token's first."""
    decay: Tensor
    """[value_heads]: -e^A_log"""
    bias: Tensor
    """[decays], added to what the decays are made from."""
    norm: Tensor
    """[value]"""
    eps: float
    """Epsilon of that norm."""
    unit_eps: float = 1e-6
    """Added to the squares of queries and keys."""

    def to(self, device: torch.device) -> DeltaWeights:
        """The same on a device."""
        convolution, decay, bias, norm = (each.to(device) for each in self[:4])
        return self._replace(convolution=convolution, decay=decay, bias=bias, norm=norm)


class DeltaArguments(ctypes.Structure):
    """``Delta`` of delta.c."""

    _fields_ = (
        *fields(ctypes.c_void_p, "mixed", "gates", "out", "convolution", "decay", "bias", "norm", "tails", "matrices"),
        *fields(ctypes.c_void_p, "runs", "begins", "parents"),
        *fields(ctypes.c_int64, "sequences", "key_heads", "value_heads", "key", "value", "kernel", "channels"),
        *fields(ctypes.c_float, "eps", "unit_eps", "share_scale"),
        *fields(ctypes.c_int32, "bfloat16", "tiled", "channel_decays"),
    )


def delta_of(
    inputs: tuple[Tensor, Tensor, Tensor],
    weights: DeltaWeights,
    shape: RecurrentShape,
    states: LayerStates,
    tables: RunTables,
) -> DeltaArguments:
    """The structure; ``inputs`` are mixed, gates and out."""
    mixed, gates, out = inputs
    by = weights.convolution, weights.decay, weights.bias, weights.norm
    return DeltaArguments(
        *(each.data_ptr() for each in (mixed, gates, out, *by, states.tails, states.matrices)),
        *tables.addresses,
        tables.sequences,
        shape.key_heads,
        shape.value_heads,
        shape.key,
        shape.value,
        shape.kernel,
        shape.channels,
        weights.eps,
        weights.unit_eps,
        shape.share_scale,
        mixed.dtype == torch.bfloat16,
        shape.tiled,
        shape.channel_decays,
    )

"""Weights of a state space model, and structures that describe a step to `state_space.c`."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.native.attention import fields
from engine.compute.native.runs import RunTables
from engine.config.states import MambaShape


class MambaWeights(NamedTuple):
    """Weights of a layer besides its linear layers, all in float32."""

    convolution: Tensor
    """[kernel, channels], the oldest token's first."""
    convolution_bias: Tensor | None
    """[channels]"""
    decay: Tensor
    """[heads]: A = -e^A_log"""
    bias: Tensor
    """[heads], added to what the steps are made from."""
    skip: Tensor
    """[heads]: D"""
    norm: Tensor
    """[groups, size]: the weight of the norm of what a group reads."""


class Space(ctypes.Structure):
    """``Space`` of state_space.c."""

    _fields_ = (
        *fields(ctypes.c_void_p, "seen", "steps", "bias", "decay", "skip", "out", "matrices"),
        *fields(ctypes.c_void_p, "runs", "begins", "parents"),
        *fields(ctypes.c_int64, "sequences", "heads", "groups", "state", "width", "stride"),
        *fields(ctypes.c_float, "least", "most"),
        ("bfloat16", ctypes.c_int32),
    )


class GatedNorm(ctypes.Structure):
    """``GatedNorm`` of state_space.c."""

    _fields_ = (
        *fields(ctypes.c_void_p, "read", "gate", "weight", "out"),
        *fields(ctypes.c_int64, "groups", "size", "stride"),
        ("eps", ctypes.c_float),
        ("bfloat16", ctypes.c_int32),
    )


def space_of(
    seen: Tensor,
    steps: Tensor,
    weights: MambaWeights,
    shape: MambaShape,
    out: Tensor,
    matrices: Tensor,
    tables: RunTables,
) -> Space:
    """``seen [rows, channels]`` float32 and contiguous; rows of ``steps [rows, heads]`` may lie apart."""
    tensors = (seen, steps, weights.bias, weights.decay, weights.skip, out, matrices)
    return Space(
        *(each.data_ptr() for each in tensors),
        *tables.addresses,
        tables.sequences,
        shape.heads,
        shape.groups,
        shape.state,
        shape.width,
        steps.stride(0),
        *shape.limits,
        steps.dtype == torch.bfloat16,
    )

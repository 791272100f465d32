"""Structure that describes a step to `convolution.c`."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from engine.compute.native.attention import fields
from engine.compute.native.runs import RunTables

MOST_TAPS = 64


class ConvolutionArguments(ctypes.Structure):
    """``Convolution`` of convolution.c."""

    _fields_ = (
        *fields(ctypes.c_void_p, "inputs", "taps", "bias", "tails", "out", "runs", "begins", "parents"),
        *fields(ctypes.c_int64, "sequences", "kernel", "channels", "stride"),
        *fields(ctypes.c_int32, "bfloat16", "silu"),
    )


def convolution_of(
    inputs: Tensor, taps: Tensor, bias: Tensor | None, tails: Tensor, out: Tensor, tables: RunTables, silu: bool
) -> ConvolutionArguments:
    """The structure; rows of ``inputs [T, channels]`` may lie apart."""
    tensors = (inputs, taps, bias, tails, out)
    return ConvolutionArguments(
        *(None if each is None else each.data_ptr() for each in tensors),
        *tables.addresses,
        tables.sequences,
        *taps.shape,
        inputs.stride(0),
        inputs.dtype == torch.bfloat16,
        silu,
    )

"""Structures that describe a router and a block of experts to `experts.c`."""

from __future__ import annotations

import ctypes

from engine.compute.native.attention import fields

ROUTINGS = ("all", "chosen", "sigmoid")
"""Kinds 0, 1 and 2 of `MoEConfig.routing` in experts.c."""
PLAIN = "relu2"
"""What experts without gates may have in place of a gating: the number after those of `library.GATINGS`."""


class RouterArguments(ctypes.Structure):
    """``Router`` of experts.c."""

    _fields_ = (
        *fields(ctypes.c_void_p, "x", "weight", "bias", "scores", "choice_bias", "scales", "chosen", "shares"),
        *fields(ctypes.c_int64, "rows", "size", "experts", "choices", "groups", "groups_taken"),
        ("share_scale", ctypes.c_float),
        *fields(ctypes.c_int32, "routing", "normalised", "bfloat16"),
    )


class LayersArguments(ctypes.Structure):
    """``Layers`` of experts.c."""

    _fields_ = fields(ctypes.c_void_p, "weights", "biases", "digits", "refined", "orders")


class ExpertsArguments(ctypes.Structure):
    """``Experts`` of experts.c."""

    _fields_ = (
        *fields(LayersArguments, "gate_up", "down"),
        *fields(ctypes.c_void_p, "chosen", "shares", "x", "shared", "out", "sums"),
        *fields(ctypes.c_int64, "rows", "choices", "experts", "few"),
        *fields(ctypes.c_float, "limit", "alpha"),
        *fields(ctypes.c_int32, "gating", "bfloat16"),
    )

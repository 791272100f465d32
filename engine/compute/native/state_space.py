"""Structure that describes a step to `state_space.c`."""

from __future__ import annotations

import ctypes

from torch import Tensor

from engine.compute.native.attention import fields
from engine.compute.native.runs import RunTables


class Space(ctypes.Structure):
    """``Space`` of state_space.c."""

    _fields_ = (
        *fields(ctypes.c_void_p, "queries", "keys", "values", "decays", "out", "matrices", "runs", "begins", "parents"),
        *fields(ctypes.c_int64, "sequences", "heads", "groups", "state", "width"),
    )


def space_of(rows: tuple[Tensor, ...], out: Tensor, matrices: Tensor, tables: RunTables) -> Space:
    """``rows`` are queries, keys, values and decays; all are float32 and contiguous."""
    tensors = (each.data_ptr() for each in (*rows, out, matrices))
    return Space(
        *tensors, *tables.addresses, tables.sequences, matrices.shape[1], rows[0].shape[1], *matrices.shape[2:]
    )

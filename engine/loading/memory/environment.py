"""Environment variables that the libraries torch brings read once each, set here unless they are set already."""

from __future__ import annotations

import os
from collections.abc import Mapping

KERNELS = 64
"""Kernels kept of those that oneDNN compiled last, on a CPU with bfloat16 instructions, for each number of rows: under
40 MB, whatever the shapes."""
_CAPACITIES = {name: str(KERNELS) for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")}
"""The capacities of oneDNN's own cache, and of the one that torch keeps in every thread that multiplies. Either keeps a
kernel; either is 1024 by default."""
_SPINS = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
"""Time that threads of OpenMP look out for more work before they sleep, for two of its runtimes: turns of a loop, of
which libgomp's own choice is 300,000, and milliseconds, 200 in LLVM's. They keep cores from native code's threads."""


def bound_kernels() -> None:
    """Before the first product of a process."""
    _set(_CAPACITIES)


def bound_spinning() -> None:
    """Before torch is imported; not where OMP_WAIT_POLICY says how threads wait."""
    if "OMP_WAIT_POLICY" not in os.environ:
        _set(_SPINS)


def without_bounds(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for other people's programs, as it was before these bounds were set."""
    bounds = _CAPACITIES | _SPINS
    return {name: value for name, value in environment.items() if value != bounds.get(name)}


def _set(bounds: Mapping[str, str]) -> None:
    for name, value in bounds.items():
        os.environ.setdefault(name, value)

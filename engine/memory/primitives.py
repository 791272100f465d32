"""A bound on the kernels that oneDNN compiles, on a CPU with bfloat16 instructions, for each number of rows."""

from __future__ import annotations

import os

KEPT = 64
"""Kernels kept of those last used: under 40 MB, whatever the shapes."""
_CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""The capacities of oneDNN's own cache, and of the one that torch keeps in every thread that multiplies. Either keeps a
kernel."""


def bound_primitives() -> None:
    """Keep fewer than the 1024 kernels of each cache's default, unless the environment says how many.

    Both are read at the first product of a process, so this comes before it.
    """
    for name in _CAPACITIES:
        os.environ.setdefault(name, str(KEPT))

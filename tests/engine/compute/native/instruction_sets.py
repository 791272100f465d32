"""The instruction sets to try native kernels with: those of this processor that KVASIR_NATIVE allows."""

from __future__ import annotations

import pytest
import torch

from engine.compute.native import library
from engine.compute.native.instructions import AUTO, AVX512_BF16, OFF, SETS, NoSuchInstructions, wanted

NAMES = tuple(SETS)


def activations(name: str) -> torch.dtype:
    """What the 16-bit or 32-bit products of a set multiply."""
    return torch.bfloat16 if name == AVX512_BF16 else torch.float32


def at_hand() -> list[str]:
    if wanted() in (AUTO, OFF):
        allowed = NAMES if wanted() == AUTO else ()
    else:
        allowed = NAMES[NAMES.index(wanted()) :]
    return [name for name in allowed if _runs(name)]


def _runs(name: str) -> bool:
    try:
        return library.find_with(name).library is not None
    except NoSuchInstructions:
        return False


each_kernel = pytest.mark.parametrize("kernel", at_hand(), indirect=True)
"""The test's ``kernel`` is the type of activations; KVASIR_NATIVE forces the set while it runs."""

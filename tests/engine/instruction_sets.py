"""The instruction sets to try native kernels with: those of this processor that KVASIR_NATIVE allows."""

from __future__ import annotations

import pytest
import torch

from engine.native import library
from engine.native.instructions import AUTO, AVX2, AVX512_BF16, OFF, PORTABLE, NoSuchInstructions, wanted

SETS = (AVX512_BF16, AVX2, PORTABLE)
ACTIVATIONS = {AVX512_BF16: torch.bfloat16, AVX2: torch.float32, PORTABLE: torch.float32}
"""What each set's own products multiply."""


def at_hand() -> list[str]:
    if wanted() in (AUTO, OFF):
        allowed = SETS if wanted() == AUTO else ()
    else:
        allowed = SETS[SETS.index(wanted()) :]
    return [name for name in allowed if _runs(name)]


def _runs(name: str) -> bool:
    try:
        return library.find_with(name).library is not None
    except NoSuchInstructions:
        return False


each_kernel = pytest.mark.parametrize("kernel", at_hand(), indirect=True)
"""The test's ``kernel`` is the type of activations; KVASIR_NATIVE forces the set while it runs."""

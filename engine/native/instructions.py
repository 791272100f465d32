"""Which of the processor's instructions Kvasir's own code uses: all it knows, or those that KVASIR_NATIVE names."""

from __future__ import annotations

import os

VARIABLE = "KVASIR_NATIVE"
AUTO, AVX512_BF16, AVX2, PORTABLE, OFF = SETS = ("auto", "avx512bf16", "avx2", "portable", "off")
"""PORTABLE is plain C, as on a processor without AVX2 or of another kind; OFF is no native code, as where none is
built, and leaves everything else as it is."""


class NoSuchInstructions(Exception):  # noqa: N818 - a sentence for a person
    """KVASIR_NATIVE asks for instructions that are not available; the message says so and which ones are."""


def wanted() -> str:
    """The value of KVASIR_NATIVE, one of :data:`SETS`. Raises :class:`NoSuchInstructions` for another."""
    value = os.environ.get(VARIABLE, "") or AUTO
    if value not in SETS:
        raise NoSuchInstructions(f"{VARIABLE} is {value!r}, which is none of {', '.join(SETS[:-1])} and {SETS[-1]}.")
    return value


def lack_of(name: str) -> str:
    """Why the instructions ``name`` are not used: by what was asked for, or because there are none."""
    if wanted() in (AVX2, PORTABLE):
        return f"{VARIABLE}={wanted()} leaves {name} out"
    return f"this processor lacks {name}"

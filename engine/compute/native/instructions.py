"""Processor instructions that Kvasir's own code uses: all it knows, or those that KVASIR_NATIVE names."""

from __future__ import annotations

import os
import platform
from typing import NamedTuple

VARIABLE = "KVASIR_NATIVE"
AUTO, OFF = "auto", "off"
"""OFF is no native code, as where none is built, and leaves everything else as it is."""
PORTABLE, AVX2, AVX_VNNI, AVX512_VNNI, AVX512_BF16 = "portable", "avx2", "avxvnni", "avx512vnni", "avx512bf16"
DOTPROD, I8MM = "dotprod", "i8mm"


class InstructionSet(NamedTuple):
    """``title`` is for people, ``flags`` are what the compiler is given."""

    name: str
    title: str
    flags: tuple[str, ...] = ()


_PLAIN = InstructionSet(PORTABLE, "plain C")
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni")
_ARM = "-march=armv8.2-a+fp16+dotprod"
_KNOWN = {
    "x86_64": (
        InstructionSet(AVX512_BF16, "AVX512-BF16", (*_AVX512, "-mavx512bf16")),
        InstructionSet(AVX512_VNNI, "AVX512-VNNI", _AVX512),
        InstructionSet(AVX_VNNI, "AVX-VNNI", (*_AVX2, "-mavxvnni")),
        InstructionSet(AVX2, "AVX2", _AVX2),
    ),
    "aarch64": (
        InstructionSet(I8MM, "NEON with i8mm", (f"{_ARM}+i8mm",)),
        InstructionSet(DOTPROD, "NEON with dotprod", (_ARM,)),
    ),
}


def sets_of(machine: str) -> tuple[InstructionSet, ...]:
    """The sets that code is compiled for on a kind of processor (platform.machine()), the best first; each can run what
    stands after it. The last one is what every such processor has."""
    known = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}.get(machine, machine)
    return (*_KNOWN.get(known, ()), _PLAIN)


SETS = {each.name: each for each in sets_of(platform.machine())}


class NoSuchInstructions(Exception):  # noqa: N818 - a sentence for a person
    """KVASIR_NATIVE asks for instructions that are not available; the message says so and which ones are."""


def wanted() -> str:
    """The value of KVASIR_NATIVE: AUTO, OFF or one of :data:`SETS`. Raises :class:`NoSuchInstructions` for another."""
    value = os.environ.get(VARIABLE, "") or AUTO
    if value not in (AUTO, OFF, *SETS):
        raise NoSuchInstructions(f"{VARIABLE} is {value!r}, which is none of {', '.join((AUTO, *SETS))} and {OFF}.")
    return value


def leaves_bfloat16() -> bool:
    """Return True if KVASIR_NATIVE lets the processor multiply in bfloat16, if it can."""
    return wanted() in (AUTO, OFF, AVX512_BF16)


def lack_of(name: str) -> str:
    """Reason the instructions ``name`` are not used: by what was asked for, or because there are none."""
    return f"this processor lacks {name}" if leaves_bfloat16() else f"{VARIABLE}={wanted()} leaves {name} out"

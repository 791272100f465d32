"""PTX that turns packed codes into 16-bit floats, for kernels to inline on NVIDIA GPUs.

Each text is for ``tl.inline_asm_elementwise``: one 32-bit register of codes in, registers of two floats each out.
Triton's own conversions compile to two or three times as many instructions. They are made once: every launch asks.
"""

from __future__ import annotations

import functools

import torch

_ONES = {torch.bfloat16: 0x43004300, torch.float16: 0x64006400}
"""Two floats whose last mantissa bit counts 1: an integer of few bits, put there, is added to them."""
_MAGIC = {torch.bfloat16: 128.0, torch.float16: 1024.0}
"""Value of each of those floats."""


@functools.cache
def nibbles(dtype: torch.dtype) -> tuple[str, float]:
    """Two halfwords of four codes each -> four registers, code j of both halves; and what every float is too large by.

    Frantar et al. 2024, MARLIN (arXiv 2408.11743), after Kim et al. 2022 (arXiv 2211.10017).
    """
    lines = ["{ .reg .b32 t;"]
    for place in range(4):
        # 0xEA is (a & b) | c: left to the compiler these are two instructions.
        lines.append(f"shr.u32 t, $4, {4 * place};")
        lines.append(f"lop3.b32 ${place}, t, 0x000F000F, {_ONES[dtype]:#010x}, 0xEA;")
    return "\n".join([*lines, "}"]), _MAGIC[dtype]


@functools.cache
def lookup(table: tuple[float, ...], dtype: torch.dtype) -> str:
    """Same as :func:`nibbles`, with codes for the 16 numbers of ``table``, rounded to ``dtype``; nothing is added.

    A byte permutation looks up four codes of 3 bits among 8 bytes; the fourth bit then chooses between two of them.
    """
    bits = [int(value) & 0xFFFF for value in torch.tensor(table).to(dtype).view(torch.int16).tolist()]
    halves = {"l": [value & 255 for value in bits], "h": [value >> 8 for value in bits]}
    lines = [
        "{ .reg .b32 a, b, q0, q1, s0, s1, l0, l1, h0, h1, c0, c1, d0, d1;",
        "and.b32 q0, $4, 0x77777777;",
        "shr.u32 s0, $4, 1;",
        "lop3.b32 s0, s0, 0x44444444, 0x32103210, 0xEA;",
        "shr.u32 q1, q0, 16;",
        "shr.u32 s1, s0, 16;",
    ]
    for half in (0, 1):
        for part, values in halves.items():
            words = [f"{int.from_bytes(bytes(values[i : i + 4]), 'little'):#010x}" for i in range(0, 16, 4)]
            lines.append(f"prmt.b32 a, {words[0]}, {words[1]}, q{half};")
            lines.append(f"prmt.b32 b, {words[2]}, {words[3]}, q{half};")
            lines.append(f"prmt.b32 {part}{half}, a, b, s{half};")
        lines.append(f"prmt.b32 c{half}, l{half}, h{half}, 0x5140;")
        lines.append(f"prmt.b32 d{half}, l{half}, h{half}, 0x7362;")
    for place, pair, select in ((0, "c", 0x5410), (1, "c", 0x7632), (2, "d", 0x5410), (3, "d", 0x7632)):
        lines.append(f"prmt.b32 ${place}, {pair}0, {pair}1, {select:#06x};")
    return "\n".join([*lines, "}"])


_ONE = {torch.bfloat16: 0x3F803F80, torch.float16: 0x3C003C00}


@functools.cache
def scaled(offset: str, dtype: torch.dtype) -> str:
    """Two floats times two scales; as planes.py's ``offset`` has it plus two others before and two more after.

    Every step is rounded, but the first sum is exact where codes become integers.
    """
    # Where there is no instruction that adds or multiplies bfloat16, there is the one that does both.
    fma = f"fma.rn.{'bf16x2' if dtype == torch.bfloat16 else 'f16x2'}"
    if offset == "none":
        return f"{{ .reg .b32 z; mov.b32 z, 0x80008000; {fma} $0, $1, $2, z; }}"
    lines = ["{ .reg .b32 t, u, z;", f"mov.b32 u, {_ONE[dtype]:#010x};", f"{fma} t, $1, u, $3;"]
    if offset in ("eight", "zeros"):
        lines += ["mov.b32 z, 0x80008000;", f"{fma} $0, t, $2, z;"]
    else:
        lines.append(f"{fma} $0, t, $2, $4;")
    return "\n".join([*lines, "}"])


@functools.cache
def signed_bytes(dtype: torch.dtype) -> str:
    """Four int8 -> two registers of two floats each, in their order, exactly."""
    lines = ["{ .reg .b32 t, u; .reg .f32 a, b;", "xor.b32 t, $2, 0x80808080;"]
    for place in (0, 1):
        if dtype == torch.float16:
            # 1024 + 128 + code, less 1152.
            lines.append(f"prmt.b32 u, t, 0x64646464, {(0x4140, 0x4342)[place]:#06x};")
            lines.append("mov.b32 $P, 0x64806480; sub.f16x2 $P, u, $P;".replace("$P", f"${place}"))
            continue
        for name, byte in (("a", 2 * place), ("b", 2 * place + 1)):
            # 2^23 + 128 + code, less as much.
            lines.append(f"prmt.b32 u, t, 0x4B000000, {0x7440 + byte:#06x};")
            lines.append(f"mov.b32 {name}, u; sub.f32 {name}, {name}, 0f4B000080;")
        lines.append(f"cvt.rn.bf16x2.f32 ${place}, b, a;")
    return "\n".join([*lines, "}"])

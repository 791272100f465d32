"""Kernels for a few rows that see whole texts of codes: one record a kind of keys and a width of heads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.cache.stores.packed import PackedKV
from engine.compute.attention.interface import AttnSpec
from engine.compute.batch import power_of_two

BYTES = """{ .reg .b32 t;
lop3.b32 $0, $2, 0x00FF00FF, 0x64806480, 0x6A;
shr.u32 t, $2, 8;
lop3.b32 $1, t, 0x00FF00FF, 0x64806480, 0x6A; }"""
"""PTX: two halfwords of two int8 each -> float16 of the first codes and of the second, each 1152 too large. (0x6A is
(a & b) ^ c, which turns the sign of a code about.)"""
BYTES_MAGIC = 1152.0
NIBBLES = """{ .reg .b32 t;
and.b32 $0, $4, 0x000F000F;
and.b32 $2, $4, 0x00F000F0;
shr.u32 t, $4, 8;
and.b32 $1, t, 0x000F000F;
and.b32 $3, t, 0x00F000F0; }"""
"""PTX: two halfwords of four codes of 4 bits each -> float16 of NIBBLES_UNIT times less: the lower codes of the first
byte and of the second, and the higher ones, see nibble_kernels.py."""
MIXED_NIBBLES = """{ .reg .b32 t, m;
and.b32 $0, $6, 0x000F000F;
shr.u32 t, $6, 8;
and.b32 $1, t, 0x000F000F;
lop3.b32 m, $8, 0x00FF00FF, 0x000F000F, 0x6A;
lop3.b32 t, $6, $7, $8, 0xE4;
and.b32 $2, t, m;
shr.u32 t, t, 8;
and.b32 $3, t, m;
lop3.b32 t, $6, $7, $8, 0xD8;
and.b32 $4, t, 0x00F000F0;
shr.u32 t, t, 8;
and.b32 $5, t, 0x00F000F0; }"""
"""PTX: the same of two halfwords and two others, and of which half each is, all bits or none: first the lower codes;
then the higher ones of the first half with the others' lower ones of the second; then higher ones, the others' of the
first half. (0xE4 is a where c is set and b elsewhere, 0xD8 the other way about.)"""
NIBBLES_UNIT = float(1 << 24)
ALIGNMENT = 16
"""Bytes that strides of keys and values are multiples of."""


class FewRows(NamedTuple):
    """A kernel for a few rows."""

    rows: int
    """Rows times heads for each KV head, at most: those of its tile."""
    keys: int
    """Keys of a tile."""
    warps: int
    kernel: Callable[[], Any]
    """The kernel, which needs Triton."""
    constants: Callable[[int, bool, bool], dict[str, Any]]
    """Constants of its own for heads of as many channels; for numbers of 32 bits, which serve to be compared and need
    no float16; and where there may be PTX."""


def _bytes() -> Any:
    from engine.compute.attention.triton import byte_kernels

    return byte_kernels.attend_bytes


def _nibbles() -> Any:
    from engine.compute.attention.triton import nibble_kernels

    return nibble_kernels.attend_nibbles


def _wide_nibbles() -> Any:
    from engine.compute.attention.triton import wide_nibble_kernels

    return wide_nibble_kernels.attend_wide_nibbles


def _of_bytes(width: int, exact: bool, inline: bool) -> dict[str, Any]:
    lanes, magic = power_of_two(width // 2), 0.0 if exact else BYTES_MAGIC
    # A warp alone would have more sums of wide heads than registers.
    warps = _warps(width) if lanes <= 64 else 1
    return {"HALF": width // 2, "LANES": lanes, "WARPS": warps, "ASM": BYTES if inline else "", "MAGIC": magic}


def _of_wide_nibbles(width: int, exact: bool, inline: bool) -> dict[str, Any]:
    if not inline:
        return {"WIDTH": width, "ASM": "", "UNIT": 1.0}
    return {"WIDTH": width, "ASM": MIXED_NIBBLES if width == 96 else NIBBLES, "UNIT": NIBBLES_UNIT}


def _of_nibbles(width: int, exact: bool, inline: bool) -> dict[str, Any]:
    return {**_of_wide_nibbles(width, exact, inline), "WARPS": _warps(width)}


WARPS, KEYS = 4, 128
"""Warps of a program, and keys of a tile, twice those of other kinds."""


def _warps(width: int) -> int:
    """As many as make a turn of each about as long: what comes once in each turn is half of a short one."""
    return WARPS if width > 64 else WARPS // 2


def _named(kind: str, width: int) -> FewRows | None:
    if kind == "int8" and 32 <= width <= 256 and width % ALIGNMENT == 0:
        keys = KEYS if width <= 128 else KEYS // 2
        return FewRows(rows=16, keys=keys, warps=_warps(width), kernel=_bytes, constants=_of_bytes)
    if kind == "int4" and width in (64, 96, 128):
        return FewRows(rows=16, keys=KEYS, warps=_warps(width), kernel=_nibbles, constants=_of_nibbles)
    if kind == "int4" and width == 256:
        # One warp, since products with values have 16 rows and as many columns, which several would all compute; 16
        # rows would have more sums than a thread has registers.
        return FewRows(rows=8, keys=KEYS // 4, warps=1, kernel=_wide_nibbles, constants=_of_wide_nibbles)
    return None


named = functools.cache(_named)
"""The kernel of a kind for heads of as many channels; None: there is none."""


def kernel_of(kv: PackedKV, spec: AttnSpec, packed_rows: int, whole: bool) -> FewRows | None:
    """The kernel for so many rows times heads for each KV head, of which each sees the ``whole`` text before it; None:
    there is none, as where values are not as wide as keys."""
    few = named(kv.kind, kv.k_dim)
    if few is None or packed_rows > few.rows or not whole or spec.window is not None or spec.softcap is not None:
        return None
    aligned = all(stride % ALIGNMENT == 0 for stride in kv.k.stride()[:2])
    return few if kv.k_dim == kv.v_dim and kv.k.stride() == kv.v.stride() and aligned else None

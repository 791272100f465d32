"""Kernels for a few rows that see whole texts of codes, in heads of 2^n channels: one record a kind of keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engine.cache.stores.packed import PackedKV
from engine.compute.attention.interface import AttnSpec
from engine.compute.batch import power_of_two

WIDEST = 256
"""The most channels of a head."""
BYTES = """{ .reg .b32 t;
lop3.b32 $0, $2, 0x00FF00FF, 0x64806480, 0x6A;
shr.u32 t, $2, 8;
lop3.b32 $1, t, 0x00FF00FF, 0x64806480, 0x6A; }"""
"""PTX: two halfwords of two int8 each -> float16 of the first codes and of the second, each 1152 too large. (0x6A is
(a & b) ^ c, which turns the sign of a code about.)"""
BYTES_MAGIC = 1152.0
NIBBLES = """{ .reg .b32 t;
and.b32 $0, $4, 0x000F000F;
and.b32 $1, $4, 0x00F000F0;
shr.u32 t, $4, 8;
and.b32 $2, t, 0x000F000F;
and.b32 $3, t, 0x00F000F0; }"""
"""PTX: two halfwords of four codes of 4 bits each -> float16 of NIBBLES_UNIT times less, see nibble_kernels.py."""
NIBBLES_UNIT = float(1 << 24)
NIBBLES_GROUP = 32
"""Channels that share a scale and a minimum in every head that nibble_kernels.py serves."""


class FewRows(NamedTuple):
    """A kernel for a few rows."""

    rows: int
    """Rows times heads for each KV head, at most: those of its tile."""
    least: int
    """Channels of a head, at least."""
    keys: int
    """The most keys of a tile, and ..."""
    numbers: int
    """... the most numbers of them."""
    warps: int
    kernel: Callable[[], Any]
    """The kernel, which needs Triton."""
    constants: Callable[[int, bool, bool], dict[str, Any]]
    """Constants of its own for heads of as many channels; for numbers of 32 bits, which serve to be compared and need
    no float16; and where there may be PTX."""

    def tile_keys(self, width: int) -> int:
        """Keys of a tile, of heads of ``width`` channels."""
        return min(self.keys, self.numbers // width)


def _bytes() -> Any:
    from engine.compute.attention.triton import byte_kernels

    return byte_kernels.attend_bytes


def _nibbles() -> Any:
    from engine.compute.attention.triton import nibble_kernels

    return nibble_kernels.attend_nibbles


def _of_bytes(width: int, exact: bool, inline: bool) -> dict[str, Any]:
    return {"HALF": width // 2, "ASM": BYTES if inline else "", "MAGIC": 0.0 if exact else BYTES_MAGIC}


def _of_nibbles(width: int, exact: bool, inline: bool) -> dict[str, Any]:
    pairs, half = width // (2 * NIBBLES_GROUP), NIBBLES_GROUP // 2
    return {"PAIRS": pairs, "HALF": half, "ASM": NIBBLES if inline else "", "UNIT": NIBBLES_UNIT if inline else 1.0}


KERNELS = {
    # Twice the keys of other kinds.
    "int8": FewRows(rows=16, least=32, keys=128, numbers=1 << 14, warps=4, kernel=_bytes, constants=_of_bytes),
    # One warp, since products with values have 16 rows and as many columns, which several would all compute; 16 rows
    # would have more sums than a thread has registers.
    "int4": FewRows(
        rows=8, least=2 * NIBBLES_GROUP, keys=64, numbers=1 << 13, warps=1, kernel=_nibbles, constants=_of_nibbles
    ),
}


def kernel_of(kv: PackedKV, spec: AttnSpec, packed_rows: int, whole: bool) -> FewRows | None:
    """The kernel for so many rows times heads for each KV head, of which each sees the ``whole`` text before it; None:
    there is none, as where heads have not 2^n channels."""
    few, width = KERNELS.get(kv.kind), kv.k_dim
    if few is None or packed_rows > few.rows or not whole or spec.window is not None or spec.softcap is not None:
        return None
    return few if few.least <= width == kv.v_dim == power_of_two(width) <= WIDEST else None

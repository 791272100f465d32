"""The inlined PTX, instruction by instruction on integers: what it computes from every code, without a GPU."""

from __future__ import annotations

import itertools
import re
import struct

import pytest
import torch

from engine.layers.linear.triton import inline

HALVES = [torch.bfloat16, torch.float16]
MASK = 0xFFFFFFFF


def float32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def bits_of(values: list[float], dtype: torch.dtype) -> list[int]:
    return [value & 0xFFFF for value in torch.tensor(values).to(dtype).view(torch.int16).tolist()]


def floats_of(register: int, dtype: torch.dtype) -> list[float]:
    """The two floats of a register, the lower first."""
    halves = torch.tensor([register & 0xFFFF, register >> 16], dtype=torch.int32).to(torch.int16)
    return [float(value) for value in halves.view(dtype)]


def permuted(a: int, b: int, select: int) -> int:
    """PTX ISA, prmt in its default mode; bytes with their sign repeated do not occur."""
    pool = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    nibbles = [(select >> 4 * place) & 15 for place in range(4)]
    assert max(nibbles) < 8
    return int.from_bytes(bytes(pool[nibble] for nibble in nibbles), "little")


def run(asm: str, codes: int, outputs: int) -> list[int]:
    """The output registers $0 and so on; the input is the register after them."""
    held = {f"${outputs}": codes}

    def value(name: str) -> int:
        if name.startswith("0f"):
            return int(name[2:], 16)
        return held[name] if name in held else int(name, 0)

    for line in re.sub(r"\.reg[^;]*;|[{}]", "", asm).split(";"):
        if not line.strip():
            continue
        operation, rest = line.strip().split(" ", 1)
        target, *names = [name.strip() for name in rest.split(",")]
        a, *more = [value(name) for name in names]
        match operation:
            case "shr.u32":
                result = a >> more[0]
            case "and.b32":
                result = a & more[0]
            case "xor.b32":
                result = a ^ more[0]
            case "mov.b32":
                result = a
            case "lop3.b32":
                b, c, table = more
                rows = zip(*(f"{word:032b}" for word in (a, b, c)), strict=True)
                result = int("".join(str(table >> int("".join(row), 2) & 1) for row in rows), 2)
            case "prmt.b32":
                result = permuted(a, more[0], more[1] & 0xFFFF)
            case "sub.f32":
                result = struct.unpack("<I", struct.pack("<f", float32(a) - float32(more[0])))[0]
            case "sub.f16x2":
                pairs = zip(floats_of(a, torch.float16), floats_of(more[0], torch.float16), strict=True)
                low, high = bits_of([x - y for x, y in pairs], torch.float16)
                result = high << 16 | low
            case "cvt.rn.bf16x2.f32":  # the first operand becomes the upper half
                low, high = bits_of([float32(more[0]), float32(a)], torch.bfloat16)
                result = high << 16 | low
            case _:
                pytest.fail(f"an instruction that is not known here: {operation}")
        held[target] = result & MASK
    return [held[f"${place}"] for place in range(outputs)]


def words() -> list[int]:
    """Every code at every place beside every other."""
    generator = torch.Generator().manual_seed(1)
    random = torch.randint(0, 1 << 32, (200,), generator=generator, dtype=torch.int64).tolist()
    return [0, MASK, *(0x11111111 * code for code in range(16)), 0x76543210, 0xFEDCBA98, *random]


@pytest.mark.parametrize("dtype", HALVES)
def test_nibbles(dtype: torch.dtype) -> None:
    asm, magic = inline.nibbles(dtype)
    for word in words():
        found = [floats_of(register, dtype) for register in run(asm, word, 4)]
        codes = [[float(half >> 4 * place & 15) + magic for half in (word & 0xFFFF, word >> 16)] for place in range(4)]
        assert found == codes


@pytest.mark.parametrize("dtype", HALVES)
def test_lookup(dtype: torch.dtype) -> None:
    table = tuple(torch.randn(16, generator=torch.Generator().manual_seed(2)).tolist())
    rounded = torch.tensor(table).to(dtype).float().tolist()
    asm = inline.lookup(table, dtype)
    for word in words():
        found = [floats_of(register, dtype) for register in run(asm, word, 4)]
        assert found == [
            [rounded[half >> 4 * place & 15] for half in (word & 0xFFFF, word >> 16)] for place in range(4)
        ]


@pytest.mark.parametrize("dtype", HALVES)
def test_signed_bytes(dtype: torch.dtype) -> None:
    asm = inline.signed_bytes(dtype)
    for first, step in itertools.product(range(-128, 128), (1, 37)):
        codes = [(first + place * step + 128) % 256 - 128 for place in range(4)]
        word = int.from_bytes(bytes(code & 255 for code in codes), "little")
        found = [value for register in run(asm, word, 2) for value in floats_of(register, dtype)]
        assert found == [float(code) for code in codes]

"""The inlined PTX, instruction by instruction on integers: what it computes from every code, without a GPU."""

from __future__ import annotations

import itertools
import re
import struct

import pytest
import torch

from engine.compute.layers.linear.triton.kernels import inline

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


def run(asm: str, inputs: int | tuple[int, ...], outputs: int) -> list[int]:
    """The output registers $0 and so on; the inputs are the registers after them."""
    registers = inputs if isinstance(inputs, tuple) else (inputs,)
    held = {f"${outputs + place}": register for place, register in enumerate(registers)}

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
            case "fma.rn.f16x2" | "fma.rn.bf16x2":
                dtype = torch.float16 if operation == "fma.rn.f16x2" else torch.bfloat16
                x, y, z = (floats_of(register, dtype) for register in (a, *more))
                # Python's floats hold the sum of the product and the third exactly, for numbers near each other.
                low, high = bits_of([x[i] * y[i] + z[i] for i in (0, 1)], dtype)
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
@pytest.mark.parametrize("offset", ["none", "eight", "zeros", "added", "two_level"])
def test_scaled(offset: str, dtype: torch.dtype) -> None:
    """Of a scale and an offset in the dtype the weight is rounded once."""

    def pair(low: float, high: float) -> int:
        first, second = bits_of([low, high], dtype)
        return second << 16 | first

    _, magic = inline.nibbles(dtype)
    for low, high in itertools.product(range(16), (0, 7, 15)):
        codes, scales = (low, high), torch.tensor([0.0123, -0.37]).to(dtype).tolist()
        zeros = [8.0, 8.0] if offset == "eight" else [float(high), 3.0] if offset == "zeros" else [0.0, 0.0]
        added = torch.tensor([0.5, -0.01]).to(dtype).tolist() if offset in ("added", "two_level") else [0.0, 0.0]
        inputs = [pair(*scales), pair(*(-magic - zero for zero in zeros)), pair(*added)]
        if offset == "none":
            registers: tuple[int, ...] = (pair(*map(float, codes)), inputs[0])
        else:
            registers = (pair(*(magic + code for code in codes)), *inputs[: 3 if any(added) else 2])
        found = floats_of(run(inline.scaled(offset, dtype), registers, 1)[0], dtype)
        exact = [(codes[i] - zeros[i]) * scales[i] + added[i] for i in (0, 1)]
        assert found == torch.tensor(exact, dtype=torch.float64).to(dtype).tolist()


@pytest.mark.parametrize("dtype", HALVES)
def test_signed_bytes(dtype: torch.dtype) -> None:
    asm = inline.signed_bytes(dtype)
    for first, step in itertools.product(range(-128, 128), (1, 37)):
        codes = [(first + place * step + 128) % 256 - 128 for place in range(4)]
        word = int.from_bytes(bytes(code & 255 for code in codes), "little")
        found = [value for register in run(asm, word, 2) for value in floats_of(register, dtype)]
        assert found == [float(code) for code in codes]

"""A compiled kernel's PTX over NumPy: what a GPU would compute by it, layouts of tensor-core operands and all.

All threads of a program go through an instruction together, program after program; so races between warps are not
found, nor a missing wait. Of PTX there is what Triton makes of Kvasir's products: an instruction that is not here
raises KeyError. Semantics: the PTX ISA. Tensor cores sum up exactly here and round once.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

Bits = Any
"""uint64 [threads], the raw bits of a register; predicates are bool."""
START = 1 << 12
"""Address of the first byte of global memory."""
_SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
          "b64": 8, "u64": 8, "s64": 8, "f64": 8, "bf16": 2, "bf16x2": 4, "f16x2": 4, "f32x2": 8}  # fmt: skip


class _Instruction(NamedTuple):
    guard: str
    """Predicate, with "!" before it where its opposite; "" for always."""
    name: tuple[str, ...]
    operands: tuple[str, ...]


class Program:
    """The instructions of a kernel."""

    def __init__(self, text: str) -> None:
        body = text[text.index(".entry") :]
        self.params = re.findall(r"\.param\s+.*?(\w+_param_\d+)", body[: body.index("{")])
        self.threads = int(re.findall(r"\.reqntid (\d+)", text)[0])
        self.instructions: list[_Instruction] = []
        self.labels: dict[str, int] = {}
        body = re.sub(r"//[^\n]*", "", body[body.index("{") + 1 :])
        for line in body.splitlines():
            for statement in line.split(";"):
                self._take(statement.strip())

    def _take(self, statement: str) -> None:
        # Blocks of inline text have registers of their own, which they write before they read them.
        statement = statement.lstrip("{} \t")
        while label := re.match(r"(\$?[\w$]+):\s*", statement):
            self.labels[label[1]] = len(self.instructions)
            statement = statement[label.end() :]
        if not statement or statement.startswith("."):
            return
        guard = re.match(r"@(!?%p\d+)\s+", statement)
        name, _, operands = statement[guard.end() if guard else 0 :].replace("\t", " ").partition(" ")
        found = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", operands)
        one = _Instruction(guard[1] if guard else "", tuple(name.split(".")), tuple(each.strip() for each in found))
        self.instructions.append(one)


def run(text: str, arguments: Sequence[Any], shared: int, grid: int) -> None:
    """All programs of a kernel. Tensors on the CPU, contiguous, are written where it writes; ``arguments`` are those
    that are no constants."""
    program = Program(text)
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    places, size = dict[int, int](), START
    for tensor in tensors:
        places[id(tensor)] = size
        size += -(-tensor.nbytes // 256) * 256 + 256
    memory = np.zeros(size, np.uint8)
    known = np.zeros(size, bool)
    for tensor in tensors:
        at = places[id(tensor)]
        memory[at : at + tensor.nbytes] = tensor.view(-1).view(torch.uint8).numpy()
        known[at : at + tensor.nbytes] = True
    values = [places[id(each)] if isinstance(each, torch.Tensor) else _raw(each) for each in arguments]
    named = dict(zip(program.params, values, strict=False))
    for number in range(grid):
        _Threads(program, memory, known, shared, named, number, grid).run()
    for tensor in tensors:
        at = places[id(tensor)]
        tensor.view(-1).view(torch.uint8).numpy()[:] = memory[at : at + tensor.nbytes]


def _raw(value: float) -> int:
    return int(np.float32(value).view(np.uint32)) if isinstance(value, float) else int(value) & (1 << 64) - 1


def _typed(bits: Bits, kind: str) -> Any:
    """Numbers of a type, from raw bits."""
    size = _SIZES[kind]
    raw = bits.astype(f"u{size}")
    if kind == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if kind == "f32x2":
        return np.ascontiguousarray(raw).view(np.float32)
    if kind[0] == "f":
        return raw.view(f"f{size}")
    return raw.view(f"i{size}") if kind[0] == "s" else raw


def _bits(numbers: Any, kind: str) -> Bits:
    """Raw bits of numbers, rounded to a type."""
    if kind == "bf16":
        rounded = torch.from_numpy(np.array(numbers, np.float32)).bfloat16().view(torch.int16).numpy()
        return rounded.view(np.uint16).astype(np.uint64)
    if kind == "f32x2":
        return np.ascontiguousarray(numbers, np.float32).view(np.uint64)
    size = _SIZES[kind]
    if kind[0] == "f":
        return np.asarray(numbers, f"f{size}").view(f"u{size}").astype(np.uint64)
    return np.asarray(numbers).astype(f"{'i' if kind[0] == 's' else 'u'}{size}").view(f"u{size}").astype(np.uint64)


class _Threads:
    """The threads of one program."""

    def __init__(self, program: Program, memory: Any, known: Any, shared: int, params: dict[str, int], number: int,
                 grid: int) -> None:  # fmt: skip
        self.program, self.memory, self.known, self.params = program, memory, known, params
        self.count = program.threads
        self.shared = np.full(shared + 16, 0x5A, np.uint8)
        self.registers: dict[str, Bits] = {}
        thread = np.arange(self.count, dtype=np.uint64)
        nothing = np.zeros(self.count, np.uint64)
        self.special = {
            "%tid.x": thread, "%laneid": thread % 32, "%ctaid.x": nothing + number, "%ctaid.y": nothing,
            "%nctaid.x": nothing + grid, "global_smem": nothing,
        }  # fmt: skip

    def run(self) -> None:
        place, instructions = 0, self.program.instructions
        with np.errstate(all="ignore"):
            while place < len(instructions):
                one = instructions[place]
                live = self._live(one.guard)
                place += 1
                if one.name[0] == "ret":
                    if live.all():
                        return
                    assert not live.any(), "threads part"
                elif one.name[0] == "bra":
                    assert live.all() or not live.any(), "threads part"
                    if live.all():
                        place = self.program.labels[one.operands[0]]
                else:
                    _OPERATIONS[one.name[0]](self, one, live)

    def _live(self, guard: str) -> Any:
        if not guard:
            return np.ones(self.count, bool)
        found = self.registers[guard.lstrip("!")]
        return ~found if guard[0] == "!" else found

    def read(self, operand: str) -> Bits:
        """Raw bits of a register or a constant."""
        if operand in self.special:
            return self.special[operand]
        if operand in self.registers:
            return self.registers[operand]
        if operand.startswith("0f"):
            return np.full(self.count, int(operand[2:], 16), np.uint64)
        if operand.startswith("-") and operand.lstrip("-").startswith("%"):
            raise KeyError(operand)
        return np.full(self.count, int(operand, 0) & (1 << 64) - 1, np.uint64)

    def number(self, operand: str, kind: str) -> Any:
        return _typed(self.read(operand), kind)

    def write(self, operand: str, bits: Bits, live: Any) -> None:
        if bits.dtype != bool:
            bits = bits.astype(np.uint64)
        before = self.registers.get(operand)
        if before is None:
            before = np.zeros_like(bits)
        self.registers[operand] = np.where(live, bits, before)

    def address(self, operand: str) -> Any:
        """Of each thread, as int64."""
        name, _, offset = operand.strip("[]").replace(" ", "").partition("+")
        return self.read(name).astype(np.int64) + (int(offset, 0) if offset else 0)

    def fetch(self, space: str, at: Any, size: int, live: Any) -> Bits:
        """Raw bits at addresses; 0 where a thread does not live."""
        memory = self.shared if space == "shared" else self.memory
        places = at[live][:, None] + np.arange(size)
        if space != "shared" and not self.known[places].all():
            raise IndexError("what no tensor holds is read")
        found = np.zeros(self.count, np.uint64)
        found[live] = np.ascontiguousarray(memory[places]).view(f"u{size}")[:, 0]
        return found

    def put(self, space: str, at: Any, bits: Bits, size: int, live: Any) -> None:
        memory = self.shared if space == "shared" else self.memory
        places = at[live][:, None] + np.arange(size)
        if space != "shared" and not self.known[places].all():
            raise IndexError("what no tensor holds is written")
        memory[places] = bits[live].astype(f"u{size}")[:, None].view(np.uint8)


def _parts(operand: str) -> list[str]:
    return [each.strip() for each in operand.strip("{}").split(",")]


def _space(one: _Instruction) -> str:
    return "shared" if any(each.startswith("shared") for each in one.name) else "global"


def _load(threads: _Threads, one: _Instruction, live: Any) -> None:
    kind = one.name[-1]
    if "param" in one.name:
        named = one.operands[1].strip("[]")
        threads.write(one.operands[0], np.full(threads.count, threads.params[named], np.uint64), live)
        return
    size = _SIZES[kind]
    at = threads.address(one.operands[1])
    for place, name in enumerate(_parts(one.operands[0])):
        threads.write(name, threads.fetch(_space(one), at + place * size, size, live), live)


def _store(threads: _Threads, one: _Instruction, live: Any) -> None:
    size, at = _SIZES[one.name[-1]], threads.address(one.operands[0])
    for place, name in enumerate(_parts(one.operands[1])):
        threads.put(_space(one), at + place * size, threads.read(name), size, live)


def _copy(threads: _Threads, one: _Instruction, live: Any) -> None:
    if one.name[2] not in ("ca", "cg"):
        return  # groups, and waits for them
    to, source, size = (threads.address(one.operands[0]), threads.address(one.operands[1]), int(one.operands[2], 0))
    given = threads.number(one.operands[3], "u32") if len(one.operands) > 3 else np.full(threads.count, size)
    for byte in range(size):
        # What is not given is 0.
        threads.put("shared", to + byte, threads.fetch("global", source + byte, 1, live & (byte < given)), 1, live)


def _move(threads: _Threads, one: _Instruction, live: Any) -> None:
    to, source = one.operands
    size = _SIZES.get(one.name[-1], 4)
    if one.name[-1] == "pred":
        known = np.full(threads.count, source not in ("0", "false"))
        threads.write(to, threads.registers.get(source, known), live)
    elif source.startswith("{"):
        parts = [threads.read(each) for each in _parts(source)]
        bits = 8 * size // len(parts)
        whole = np.zeros(threads.count, np.uint64)
        for place, part in enumerate(parts):
            whole |= (part & np.uint64((1 << bits) - 1)) << np.uint64(bits * place)
        threads.write(to, whole, live)
    elif to.startswith("{"):
        names, whole = _parts(to), threads.read(source)
        bits = 8 * size // len(names)
        for place, name in enumerate(names):
            threads.write(name, whole >> np.uint64(bits * place) & np.uint64((1 << bits) - 1), live)
    else:
        threads.write(to, threads.read(source), live)


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[_Threads, _Instruction, Any], None]:
    def compute(threads: _Threads, one: _Instruction, live: Any) -> None:
        kind = one.name[-1]
        to, *given = one.operands
        if kind == "pred":
            threads.write(to, function(*(threads.registers[each] for each in given)), live)
            return
        a, b = (threads.number(each, kind) for each in given)
        threads.write(to, _bits(function(a, b), kind), live)

    return compute


def _shift(left: bool) -> Callable[[_Threads, _Instruction, Any], None]:
    def compute(threads: _Threads, one: _Instruction, live: Any) -> None:
        kind = one.name[-1]
        a, by = threads.number(one.operands[1], kind), threads.number(one.operands[2], "u32")
        width = 8 * _SIZES[kind]
        amount = np.minimum(by, width - 1).astype(a.dtype)
        found = a << amount if left else a >> amount
        if kind[0] != "s" or left:
            found = np.where(by >= width, 0, found)
        threads.write(one.operands[0], _bits(found, kind), live)

    return compute


def _multiply(threads: _Threads, one: _Instruction, live: Any) -> None:
    kind = one.name[-1]
    a, b = (threads.number(each, kind) for each in one.operands[1:3])
    if "wide" in one.name:
        wide = kind[0] + str(16 * _SIZES[kind])
        found = a.astype(_typed(np.zeros(1, np.uint64), wide).dtype) * b.astype(
            _typed(np.zeros(1, np.uint64), wide).dtype
        )
        kind = wide
    elif "hi" in one.name:
        found = (a.astype(object) * b.astype(object)) >> (8 * _SIZES[kind])
        found = np.array([int(each) for each in found])
    else:
        found = a * b
    if one.name[0] in ("mad", "fma"):
        more = threads.number(one.operands[3], kind)  # of mad.wide in twice the bits
        if kind.startswith("f32"):  # rounded once
            found = (a.astype(np.float64) * b + more).astype(np.float32)
        else:
            found = found + more
    threads.write(one.operands[0], _bits(found, kind), live)


def _compare(threads: _Threads, one: _Instruction, live: Any) -> None:
    how, kind = one.name[1], one.name[-1]
    functions = {"lt": operator.lt, "gt": operator.gt, "le": operator.le, "ge": operator.ge, "eq": operator.eq,
                 "ne": operator.ne, "ltu": operator.lt, "gtu": operator.gt, "lo": operator.lt, "hi": operator.gt,
                 "neu": operator.ne, "ls": operator.le, "hs": operator.ge}  # fmt: skip
    a, b = (threads.number(each, kind) for each in one.operands[1:3])
    found = functions[how](a, b)
    if len(one.operands) > 3:
        other = threads.registers[one.operands[3]]
        found = found & other if one.name[2] == "and" else found | other
    threads.write(one.operands[0], found, live)


def _select(threads: _Threads, one: _Instruction, live: Any) -> None:
    to, a, b, which = one.operands
    threads.write(to, np.where(threads.registers[which], threads.read(a), threads.read(b)), live)


def _convert(threads: _Threads, one: _Instruction, live: Any) -> None:
    to, source = one.name[-2:]
    if to in ("bf16x2", "f16x2"):
        high, low = (_bits(threads.number(each, "f32"), to[:-2]) for each in one.operands[1:3])
        threads.write(one.operands[0], high << np.uint64(16) | low, live)
        return
    numbers = threads.number(one.operands[1], source)
    if to[0] in "us" and source[0] not in "fb":
        numbers = numbers.astype(np.int64) if source[0] == "s" else numbers
    threads.write(one.operands[0], _bits(numbers, to), live)


def _logic(threads: _Threads, one: _Instruction, live: Any) -> None:
    a, b, c = (threads.number(each, "u32") for each in one.operands[1:4])
    table, found = int(one.operands[4], 0), np.zeros(threads.count, np.uint32)
    for place in range(8):
        if table >> place & 1:
            found |= (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
    threads.write(one.operands[0], found, live)


def _field(threads: _Threads, one: _Instruction, live: Any) -> None:
    """Some bits of a number, with the sign of the highest of them where it has one."""
    kind = one.name[1]
    first, count = (threads.number(each, "u32").astype(np.int64) for each in one.operands[2:4])
    found = threads.number(one.operands[1], kind).astype(np.int64) >> first & (1 << count) - 1
    if kind[0] == "s":
        found = np.where(found >> np.maximum(count - 1, 0) & 1, found - (1 << count), found)
    threads.write(one.operands[0], _bits(found, kind), live)


def _permute(threads: _Threads, one: _Instruction, live: Any) -> None:
    a, b, selector = (threads.number(each, "u32").astype(np.uint64) for each in one.operands[1:4])
    both, found = a | b << np.uint64(32), np.zeros(threads.count, np.uint64)
    for place in range(4):
        which = selector >> np.uint64(4 * place) & np.uint64(15)
        byte = both >> (which & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = np.where(byte >> np.uint64(7), np.uint64(255), np.uint64(0))
        found |= np.where(which & np.uint64(8), sign, byte) << np.uint64(8 * place)
    threads.write(one.operands[0], found, live)


def _shuffle(threads: _Threads, one: _Instruction, live: Any) -> None:
    assert one.name[2] == "bfly"
    to, source, mask = one.operands[0].split("|")[0], threads.read(one.operands[1]), int(one.operands[2], 0)
    threads.write(to, source[np.arange(threads.count) ^ mask], live)


def _unary(function: Callable[[Any], Any]) -> Callable[[_Threads, _Instruction, Any], None]:
    def compute(threads: _Threads, one: _Instruction, live: Any) -> None:
        kind = one.name[-1]
        if kind == "pred":
            threads.write(one.operands[0], ~threads.registers[one.operands[1]], live)
        else:
            found = _bits(function(threads.number(one.operands[1], kind)), kind)
            threads.write(one.operands[0], found, live)

    return compute


def _tensor_cores(threads: _Threads, one: _Instruction, live: Any) -> None:
    """m16n8k16: which element each thread of a warp holds, by the PTX ISA's figures."""
    assert one.name[3] == "m16n8k16"
    kind = one.name[7]
    out, a, b, c = map(_parts, one.operands)
    warps, lane = threads.count // 32, np.arange(32)
    row, pair = lane // 4, lane % 4 * 2

    def halves(name: str) -> Any:
        bits = threads.read(name).reshape(warps, 32)
        return [_typed(bits >> np.uint64(16 * half) & np.uint64(0xFFFF), kind).astype(np.float64) for half in (0, 1)]

    left, right, sums = np.zeros((warps, 16, 16)), np.zeros((warps, 16, 8)), np.zeros((warps, 16, 8))
    for place, name in enumerate(a):
        for half, numbers in enumerate(halves(name)):
            left[:, row + 8 * (place % 2), pair + half + 8 * (place // 2)] = numbers
    for place, name in enumerate(b):
        for half, numbers in enumerate(halves(name)):
            right[:, pair + half + 8 * place, row] = numbers
    for place, name in enumerate(c):
        sums[:, row + 8 * (place // 2), pair + place % 2] = threads.number(name, "f32").reshape(warps, 32)
    found = (left @ right + sums).astype(np.float32)
    for place, name in enumerate(out):
        threads.write(name, _bits(found[:, row + 8 * (place // 2), pair + place % 2].reshape(-1), "f32"), live)


def _load_matrices(threads: _Threads, one: _Instruction, live: Any) -> None:
    """8 rows of 16 bytes each, whose addresses eight threads have: a thread gets 4 bytes of each matrix."""
    assert live.all()
    assert not {"trans", "b8"} & set(one.name)
    at, names, lane = threads.address(one.operands[1]), _parts(one.operands[0]), np.arange(threads.count)
    for matrix, name in enumerate(names):
        row = at[lane // 32 * 32 + matrix * 8 + lane % 32 // 4]
        threads.write(name, threads.fetch("shared", row + lane % 4 * 4, 4, live), live)


def _nothing(threads: _Threads, one: _Instruction, live: Any) -> None:
    """Barriers, and waits for other kernels: threads go together, and nothing is before them."""


def _divide(a: Any, b: Any) -> Any:
    """Quotients, towards zero where they are whole."""
    return a / b if a.dtype.kind == "f" else np.trunc(a.astype(np.float64) / np.where(b == 0, 1, b))


_OPERATIONS: dict[str, Callable[[_Threads, _Instruction, Any], None]] = {
    "ld": _load, "st": _store, "cp": _copy, "mov": _move, "cvta": _move, "mul": _multiply, "mad": _multiply,
    "fma": _multiply, "setp": _compare, "selp": _select, "cvt": _convert, "lop3": _logic, "prmt": _permute,
    "bfe": _field, "shfl": _shuffle, "mma": _tensor_cores, "ldmatrix": _load_matrices, "bar": _nothing,
    "barrier": _nothing, "griddepcontrol": _nothing, "add": _binary(operator.add), "sub": _binary(operator.sub),
    "and": _binary(operator.and_), "or": _binary(operator.or_), "xor": _binary(operator.xor),
    "min": _binary(np.minimum), "max": _binary(np.maximum), "div": _binary(_divide), "rem": _binary(np.fmod),
    "shl": _shift(True), "shr": _shift(False), "not": _unary(operator.invert), "neg": _unary(operator.neg),
    "abs": _unary(np.abs), "rsqrt": _unary(lambda x: 1 / np.sqrt(x)), "rcp": _unary(lambda x: 1 / x),
    "sqrt": _unary(np.sqrt), "ex2": _unary(np.exp2),
}  # fmt: skip

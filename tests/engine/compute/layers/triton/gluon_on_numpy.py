"""Gluon's language over NumPy: the source of a kernel runs on a CPU, one program after the other.

Gluon has no interpreter. Here the module of kernels is loaded a second time, over stand-ins for Triton's modules, with
the functions of fused_kernels.py that it calls. Layouts are taken and not looked at: what does not fit together the
compiler refuses, and which thread holds what is its affair. Addresses, masks, sums, roundings and what is waited for
are as the kernel says; a load or store beyond a tensor's end raises IndexError.

Copies to shared memory are made when they are asked for, which shows what is overwritten too soon, or (``late``) when
they are waited for, which shows what is read too soon.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from engine.compute.layers.linear.triton.kernels import inline
from engine.compute.native.triton_launch import Launch

ROOT = Path(__file__).parents[5]
KERNELS = "engine.compute.layers.linear.triton.kernels.resident"
FUSED = "engine.compute.layers.triton.fused_kernels"


class Type:
    """A type of elements. bfloat16 is held as float32."""

    def __init__(self, name: str, held: Any) -> None:
        self.name, self.held = name, np.dtype(held)

    def of(self, data: Any) -> Any:
        """The numbers, converted as a GPU does."""
        data = np.asarray(data)
        if self.name == "bfloat16":
            return from_bits(to_bits(data.astype(np.float32)))
        with np.errstate(over="ignore"):
            return data.astype(self.held)


TYPES = {
    name: Type(name, held)
    for name, held in {
        "int1": "?", "uint8": "u1", "int16": "i2", "int32": "i4", "int64": "i8", "float16": "f2", "bfloat16": "f4",
        "float32": "f4",
    }.items()
}  # fmt: skip
BITS = {"bfloat16": "int16", "float16": "int16", "float32": "int32"}


def to_bits(data: Any) -> Any:
    """float32 -> the 16 bits of the nearest bfloat16."""
    tensor = torch.from_numpy(np.array(data, np.float32)).bfloat16()
    return tensor.view(torch.int16).numpy()


def from_bits(bits: Any) -> Any:
    return (bits.astype(np.int32) << 16).view(np.float32)


class Array:
    """A tensor of the language: numbers and their type."""

    def __init__(self, data: Any, dtype: Type) -> None:
        self.data, self.dtype = np.asarray(data), dtype
        self.type = SimpleNamespace(layout=None, element_ty=dtype)

    def to(self, dtype: Type, bitcast: bool = False) -> Array:
        """The same numbers in another type, or the same bits."""
        if not bitcast:
            return Array(dtype.of(self.data), dtype)
        if dtype.name == "bfloat16":
            return Array(from_bits(self.data), dtype)
        return Array(self.data.view(dtype.held), dtype)

    def __getitem__(self, key: Any) -> Array:
        return Array(self.data[key], self.dtype)

    def __index__(self) -> int:
        return int(self.data)

    def __bool__(self) -> bool:
        return bool(self.data)

    def _with(self, other: Any, function: Callable[[Any, Any], Any], swapped: bool = False) -> Array:
        if isinstance(other, Array):
            left, right = self.data, other.data
        else:
            # A number takes the tensor's type, as a constant does.
            number = "float32" if isinstance(other, float) and self.dtype.held.kind != "f" else self.dtype.name
            left, right = self.data, TYPES[number].of(other)
        with np.errstate(over="ignore", invalid="ignore"):
            found = function(right, left) if swapped else function(left, right)
        kinds = {each.held: each for each in TYPES.values() if each.name != "bfloat16"}
        return Array(found, kinds[found.dtype])

    def __neg__(self) -> Array:
        return Array(-self.data, self.dtype)


def _methods() -> None:
    simple = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "lshift": np.left_shift,
        "rshift": np.right_shift, "floordiv": np.floor_divide, "mod": np.remainder,
        "truediv": lambda a, b: np.divide(np.float32(a), np.float32(b)),
    }  # fmt: skip
    for name, function in simple.items():
        setattr(Array, f"__{name}__", lambda self, other, f=function: _pointed(self, other, f))
        setattr(Array, f"__r{name}__", lambda self, other, f=function: self._with(other, f, True))
    for name, function in {"lt": np.less, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal}.items():
        setattr(Array, f"__{name}__", lambda self, other, f=function: self._with(other, f))


def _pointed(self: Array, other: Any, function: Any) -> Any:
    return other + self if isinstance(other, Pointer) else self._with(other, function)


_methods()


class Pointer:
    """Places in a tensor's memory."""

    def __init__(self, memory: Any, element: Type, at: Any = 0) -> None:
        self.memory, self.at = memory, np.asarray(at, np.int64)
        self.dtype = SimpleNamespace(element_ty=element)

    def __add__(self, places: Any) -> Pointer:
        more = places.data if isinstance(places, Array) else places
        return Pointer(self.memory, self.dtype.element_ty, self.at + more)

    def places(self, mask: Any) -> tuple[Any, Any]:
        """Those that are not masked, and where they are."""
        live = np.broadcast_to(True if mask is None else mask.data, self.at.shape)
        chosen = self.at[live]
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < self.memory.size):
            raise IndexError(f"{chosen.min()} to {chosen.max()} of {self.memory.size}")
        return live, chosen


def pointer(tensor: torch.Tensor) -> Pointer:
    """To the memory of a contiguous tensor on the CPU."""
    assert tensor.is_contiguous()
    element = TYPES[str(tensor.dtype).removeprefix("torch.")]
    flat = tensor.view(-1)
    return Pointer((flat.view(torch.int16) if element.name == "bfloat16" else flat).numpy(), element)


def load(at: Pointer, mask: Any = None, other: Any = 0) -> Array:
    """The numbers at these places; ``other`` where they are masked."""
    live, chosen = at.places(mask)
    element = at.dtype.element_ty
    found = np.full(at.at.shape, other, element.held)
    raw = at.memory[chosen]
    found[live] = from_bits(raw) if element.name == "bfloat16" else raw
    return Array(found, element)


def store(at: Pointer, value: Array, mask: Any = None) -> None:
    """Write what is not masked."""
    live, chosen = at.places(mask)
    data = np.broadcast_to(value.data, at.at.shape)[live]
    assert value.dtype is at.dtype.element_ty
    at.memory[chosen] = to_bits(data) if value.dtype.name == "bfloat16" else data


class Shared:
    """Shared memory, which is no number until it is written."""

    def __init__(self, data: Any, dtype: Type) -> None:
        self.data, self.dtype = data, dtype

    def index(self, place: Any) -> Shared:
        """A part of it."""
        return Shared(self.data[int(place)], self.dtype)

    def permute(self, order: Sequence[int]) -> Shared:
        """The same memory with its dimensions in another order."""
        return Shared(self.data.transpose(order), self.dtype)

    def store(self, value: Array) -> None:
        """Write all of it."""
        assert (value.data.shape, value.dtype) == (self.data.shape, self.dtype)
        self.data[...] = value.data

    def load(self, layout: Any) -> Array:
        """A copy."""
        return Array(self.data.copy(), self.dtype)


class Copies:
    """Copies to shared memory that are under way, in groups."""

    def __init__(self) -> None:
        self.late = False
        self.groups: list[list[Callable[[], None]]] = []
        self.open: list[Callable[[], None]] = []

    def async_copy_global_to_shared(self, to: Shared, at: Pointer, mask: Any = None) -> None:
        """Ask for a copy; what is masked stays as it was."""
        live, _ = at.places(mask)
        found = load(at, mask)
        assert live.shape == to.data.shape

        def copy() -> None:
            to.data[live] = found.data[live]

        if self.late:
            self.open.append(copy)
        else:
            copy()

    def commit_group(self) -> None:
        """End a group."""
        self.groups.append(self.open)
        self.open = []

    def wait_group(self, left: int) -> None:
        """Wait until no more than so many groups are under way."""
        while len(self.groups) > left:
            for copy in self.groups.pop(0):
                copy()


class Language:
    """The functions of the language that kernels call, and the place of the program that runs."""

    def __init__(self) -> None:
        self.place, self.count = 0, 1
        self.decoders: dict[str, tuple[Type, float]] = {}
        self.copies = Copies()

    def module(self) -> dict[str, Any]:
        """What a kernel finds in ``gl`` and ``tl``."""
        i32, f32 = TYPES["int32"], TYPES["float32"]

        def unary(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
            return lambda x: Array(f32.of(function(x.data)), f32)

        def layout(*_: Any) -> None:
            return None

        layouts = ("SliceLayout", "BlockedLayout", "NVMMADistributedLayout", "DotOperandLayout", "SwizzledSharedLayout",
                   "SharedLinearLayout")  # fmt: skip
        return {
            **TYPES,
            **dict.fromkeys(layouts, layout),
            "constexpr": lambda value: value,
            "static_range": range,
            "static_assert": _assert,
            "program_id": lambda axis: Array(np.int32(self.place if axis == 0 else 0), i32),
            "num_programs": lambda axis: Array(np.int32(self.count if axis == 0 else 1), i32),
            "arange": lambda start, end, layout=None: Array(np.arange(start, end, dtype=np.int32), i32),
            "zeros": lambda shape, dtype, layout=None: Array(np.zeros(shape, dtype.held), dtype),
            "full": lambda shape, value, dtype, layout=None: Array(np.full(shape, value, dtype.held), dtype),
            "broadcast_to": lambda x, shape: Array(np.broadcast_to(x.data, shape), x.dtype),
            "load": load,
            "store": store,
            "where": lambda condition, a, b: _where(condition, a, b),
            "minimum": lambda a, b: Array(np.minimum(a.data, _data(b)), a.dtype),
            "sum": lambda x, axis: Array(x.data.sum(axis, dtype=x.data.dtype), x.dtype),
            "reshape": lambda x, shape: Array(x.data.reshape(shape), x.dtype),
            "permute": lambda x, order: Array(x.data.transpose(order), x.dtype),
            "split": lambda x: (Array(x.data[..., 0], x.dtype), Array(x.data[..., 1], x.dtype)),
            "rsqrt": unary(lambda x: 1 / np.sqrt(x)),
            "exp": unary(lambda x: np.exp(np.minimum(x, 88.0))),
            "erf": unary(np.vectorize(math.erf, otypes=[np.float32])),
            "inline_asm_elementwise": self.decode,
            "allocate_shared_memory": _shared,
            "debug_barrier": lambda: None,
        }

    def decode(
        self, text: str, constraints: str, words: Sequence[Array], dtype: Any, is_pure: bool, pack: int
    ) -> tuple[Array, ...]:
        """What a text of inline.py makes of a halfword's four codes."""
        element, magic = self.decoders[text]
        assert (constraints, pack, *dtype) == ("=r,=r,=r,=r,r", 2, *[element] * 4)
        codes = words[0].data.astype(np.int32)
        return tuple(Array(element.of((codes >> (4 * j) & 15) + magic), element) for j in range(4))


def _shared(dtype: Type, shape: Sequence[int], layout: Any, value: Array | None = None) -> Shared:
    made = Shared(np.full(shape, np.nan if dtype.held.kind == "f" else 0x5A5A, dtype.held), dtype)
    if value is not None:
        made.store(value)
    return made


def _data(value: Any) -> Any:
    return value.data if isinstance(value, Array) else value


def _assert(holds: bool, *_: Any) -> None:
    assert holds


def _where(condition: Any, a: Any, b: Any) -> Array:
    kind = a.dtype if isinstance(a, Array) else b.dtype if isinstance(b, Array) else TYPES["int32"]
    return Array(kind.of(np.where(_data(condition), _data(a), _data(b))), kind)


def mma_v2(a: Array, b: Array, acc: Array, input_precision: str) -> Array:
    """Products of 16-bit numbers, summed up exactly and rounded once."""
    assert a.dtype is b.dtype
    assert input_precision == "ieee"
    return Array((a.data.astype(np.float64) @ b.data.astype(np.float64) + acc.data).astype(np.float32), acc.dtype)


def _jit(function: Any = None, **_: Any) -> Any:
    return function if function is not None else _jit


LANGUAGE = Language()


@cache
def kernels() -> ModuleType:
    """The module of kernels over these stand-ins."""

    def fake(name: str, **members: Any) -> ModuleType:
        module = ModuleType(name)
        module.__dict__.update(members)
        return module

    words = LANGUAGE.module()
    language, gluon = "triton.language", "triton.experimental.gluon"
    tl = fake(language, **words)
    decorators = {"jit": _jit, "constexpr_function": lambda function: function}
    cuda = fake(f"{language}.extra.cuda", gdc_wait=lambda: None)
    gl = fake(f"{gluon}.language", **words)
    ampere = fake(f"{gluon}.language.nvidia.ampere", async_copy=LANGUAGE.copies, mma_v2=mma_v2)
    stands = {
        "triton": fake("triton", jit=_jit, language=tl),
        language: tl,
        f"{language}.extra": fake(f"{language}.extra", cuda=cuda),
        f"{language}.extra.cuda": cuda,
        "triton.experimental": fake("triton.experimental", gluon=fake(gluon, language=gl, **decorators)),
        gluon: fake(gluon, language=gl, **decorators),
        f"{gluon}.language": gl,
        f"{gluon}.language.nvidia": fake(f"{gluon}.language.nvidia", ampere=ampere),
        f"{gluon}.language.nvidia.ampere": ampere,
    }
    with mock.patch.dict(sys.modules, stands):
        made = {}
        for name in (FUSED, KERNELS):
            spec = importlib.util.spec_from_file_location(name, ROOT / f"{name.replace('.', '/')}.py")
            assert spec is not None
            assert spec.loader is not None
            made[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made[name])
    return made[KERNELS]


def run(launch: Launch, late: bool) -> None:
    """All programs of a launch, one after the other."""
    kernel = getattr(kernels(), launch.kernel.fn.__name__)
    dtype = launch.args[0].dtype
    text, magic = inline.nibbles(dtype)
    LANGUAGE.decoders = {text: (TYPES[str(dtype).removeprefix("torch.")], magic)}
    args = [pointer(arg) if isinstance(arg, torch.Tensor) else arg for arg in launch.args]
    names = launch.kernel.arg_names
    constants = {name: value for name, value in launch.keywords.items() if name in names}
    assert names[len(args) :] == [name for name in names if name in constants], "all that the kernel asks for"
    LANGUAGE.copies.late, LANGUAGE.count = late, launch.grid[0]
    for place in range(launch.grid[0]):
        LANGUAGE.place = place
        LANGUAGE.copies.groups.clear()
        kernel(*args, **constants)

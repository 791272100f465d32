"""The compiled native code, or the reason why there is none."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.cache.stores.packed import PACKED_KINDS, PackedKV
from engine.cache.stores.states import LayerStates, StateRuns
from engine.compute.native import results
from engine.compute.native.attention import Attend, QuestArguments, attend_of_pages, fields
from engine.compute.native.build import built_from, library_file, opened, runs_here, source_hash, why_not_built
from engine.compute.native.convolution import MOST_TAPS, convolution_of
from engine.compute.native.delta import DeltaWeights, delta_of
from engine.compute.native.experts import ExpertsArguments, RouterArguments
from engine.compute.native.instructions import (
    AUTO,
    OFF,
    PORTABLE,
    SETS,
    VARIABLE,
    InstructionSet,
    NoSuchInstructions,
    wanted,
)
from engine.compute.native.runs import RunTables
from engine.compute.native.state_space import GatedNorm, MambaWeights, space_of
from engine.compute.native.tape import current
from engine.config.states import MambaShape, RecurrentShape

DTYPES = (torch.bfloat16, torch.float32)
"""The types of activations that there is native code for."""
GATINGS = ("silu", "gelu_tanh", "clamped")
"""Gatings 0, 1 and 2 of rows.c."""
ROW_UNIT = 16
WIDEST_HEAD = 1024
"""Rows are read in runs of so many numbers."""
_BUILD = "python -m engine.compute.native.build"


class WeightLanes(ctypes.Structure):
    """``Lanes`` of products.h: addresses of the tensors that hold a layer's weights, and what they mean."""

    _fields_ = (
        *fields(ctypes.c_void_p, "codes", "high", "scales", "zeros", "supers", "least", "shifts"),
        *fields(ctypes.c_void_p, "nested_table", "nested_scales", "book"),
        *fields(ctypes.c_int64, "in_features", "out_features", "group", "kind", "scale_type", "nested_size"),
        ("book_type", ctypes.c_int64),
        *fields(ctypes.c_float, "nested_offset", "factor"),
        ("values", ctypes.c_float * 16),
        ("table_scale", ctypes.c_float),
        ("table_count", ctypes.c_int32),
        ("tables", ctypes.c_int8 * 16 * 3),
    )


KeyLimits = tuple[np.ndarray | None, np.ndarray | None, bool]
"""First key and stop of each row, int64, where there are limits; and whether chained rows see as far as the latter."""
_ADDRESS, _SIZE, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "attend_rows": (_INT, _ADDRESS, _INT),
    "quest_rows": (_INT, _ADDRESS, _INT),
    "tree_rows": (None, _ADDRESS, _ADDRESS, *(_SIZE,) * 3, *(_ADDRESS,) * 3, _INT, _ADDRESS, _ADDRESS, _INT),
    "chain_rows": (None, _ADDRESS, _ADDRESS, _SIZE, _SIZE, _SIZE, _ADDRESS, _INT),
    "unpack_pages": (None, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _ADDRESS, _INT),
    "lanes_matmul": (_INT, _ADDRESS, _ADDRESS, _INT, _ADDRESS, _INT, _SIZE, _INT, _ADDRESS, _INT, _INT),
    "lanes_put_words": (None, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _INT, _INT, _SIZE, _SIZE, _INT),
    "lanes_put_ggml": (None, _ADDRESS, _INT, _ADDRESS, _SIZE, _SIZE, _SIZE, _INT),
    "delta_rule": (_INT, _ADDRESS, _INT),
    "convolve_runs": (None, _ADDRESS, _INT),
    "state_space": (_INT, _ADDRESS, _INT),
    "gated_norm": (_INT, _ADDRESS, _SIZE, _INT),
    "route": (_INT, _ADDRESS, _INT),
    "experts": (_INT, _ADDRESS, _INT),
    "norm": (None, _ADDRESS, _ADDRESS, _FLOAT, _INT, _ADDRESS, _INT, _FLOAT, _ADDRESS, _SIZE, _SIZE, _SIZE, _INT),
    "gate": (None, _ADDRESS, _INT, _INT, _FLOAT, _FLOAT, _ADDRESS, _SIZE, _SIZE, _INT),
    "rotate": (None, _ADDRESS, _SIZE, _INT, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _SIZE, _SIZE, _SIZE, _INT),
    "store_rows": (None, *(_ADDRESS, _SIZE, _SIZE, _ADDRESS) * 2, _ADDRESS, _SIZE, _INT),
    "hadamard": (None, _ADDRESS, _SIZE, _INT, _ADDRESS, _SIZE, _SIZE, _SIZE, _SIZE, _INT),
    "lanes_write": (None, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _INT, _INT),
}
"""Return type of each function, then its argument types."""


class NativeLibrary:
    """The loaded library. It has threads of its own (threads.c), as many as torch, up to 64."""

    def __init__(self, handle: ctypes.CDLL, instructions: InstructionSet) -> None:
        self.set = instructions
        self._functions: dict[str, Any] = {}
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = self._functions[name] = getattr(handle, name)
            function.restype, function.argtypes = result, arguments

    @property
    def instructions(self) -> str:
        """The instructions in use, for a person to read."""
        return self.set.title

    def _run(self, name: str, what: str, *arguments: Any) -> None:
        """Call a function, which takes the number of threads last. Raises MemoryError where it has no room to work."""
        function, tape = self._functions[name], current()
        if tape is not None:
            tape.add(function, arguments)
        if function(*arguments, torch.get_num_threads()):
            raise MemoryError(f"{what} ran out of memory.")

    def matmul(
        self,
        weights: WeightLanes,
        x: Tensor,
        digits: int,
        dtype: torch.dtype,
        refined: Tensor | None = None,
        gating: str = "",
    ) -> Tensor:
        """``x [T, in_features]``, contiguous, bfloat16 or float32 -> ``[T, out_features]`` in ``dtype``, one of these.

        x is quantised in so many ``digits`` of 8 bits (products.h). Where that is one, spans of 32 input features with
        a 1 in ``refined [in_features / 32]`` uint8 get a second one. With a ``gating`` of :data:`GATINGS` the result is
        what :meth:`gate` makes of that, bit for bit: ``[T, out_features / 2]``, which is a multiple of 64.
        """
        assert refined is None or (digits == 1 and len(refined) * 32 == x.shape[1])
        width = weights.out_features // 2 if gating else weights.out_features
        out = results.empty((x.shape[0], width), dtype)
        source, target = (x.data_ptr(), x.dtype == torch.bfloat16), (out.data_ptr(), dtype == torch.bfloat16)
        by = GATINGS.index(gating) if gating else -1
        shape = (len(x), digits, None if refined is None else refined.data_ptr(), by)
        self._run("lanes_matmul", "The native product", ctypes.addressof(weights), *source, *target, *shape)
        return out

    def put_words(
        self, weights: WeightLanes, words: Tensor, bits: int, start: int, order: Tensor | None, flip: int = 0
    ) -> None:
        """Pack output features from ``start`` on: ``words [ceil(K bits / 32), n]`` int32, each column a stream of codes
        of ``bits`` bits, the lowest first; code ``order[k]`` (int32) comes to place k. Bits of ``flip`` are turned."""
        words = words if words.stride(1) == 1 or words.shape[1] == 1 else words.contiguous()
        assert order is None or order.dtype == torch.int32
        source = (words.data_ptr(), words.stride(0), None if order is None else order.data_ptr(), bits, flip)
        self._run("lanes_put_words", "Packing", ctypes.addressof(weights), *source, start, words.shape[1])

    def put_ggml(self, weights: WeightLanes, type: int, data: Tensor, start: int) -> None:
        """Pack output features from ``start`` on: ``data [n, row_bytes]`` uint8, rows of ggml's blocks of ``type``."""
        data = data.contiguous()
        source = (type, data.data_ptr(), data.shape[1])
        self._run("lanes_put_ggml", "Packing", ctypes.addressof(weights), *source, start, len(data))

    def write(self, weights: WeightLanes, features: Tensor, out: Tensor) -> None:
        """Rows ``features [n]`` int64 of W into ``out [n, in_features]``, float32 or rounded once to bfloat16."""
        target = (out.data_ptr(), out.dtype == torch.bfloat16)
        self._run("lanes_write", "Unpacking", ctypes.addressof(weights), features.data_ptr(), len(features), *target)

    def norm(self, x: Tensor, weight: Tensor, eps: float, added: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """The root mean square norm of ``x [..., size]``, to which ``scale * added`` is added in place first.

        ``weight [size]``, or ``[heads, size]`` for ``x [..., heads, size]``. All are contiguous and of :data:`DTYPES`,
        x and added of the same; size is a multiple of 16. Rows do not know each other.
        """
        out, size = results.empty(x.shape, x.dtype), weight.shape[-1]
        sources = (x.data_ptr(), None if added is None else added.data_ptr(), scale, x.dtype == torch.bfloat16)
        by = (weight.data_ptr(), weight.dtype == torch.bfloat16, eps)
        self._run("norm", "A norm", *sources, *by, out.data_ptr(), x.numel() // size, size, weight.numel() // size)
        return out

    def gate(self, gate_up: Tensor, kind: str, limit: float = 0.0, alpha: float = 0.0) -> Tensor | None:
        """``gate_up [T, 2 I]``, gates before ups -> a new tensor ``[T, I]``: ``act(gate) * up`` with a kind of
        :data:`GATINGS`, of which "clamped" is gpt-oss' with ``limit`` and ``alpha``. None where it has no such rows.
        """
        rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        if kind not in GATINGS or gate_up.dtype not in DTYPES or size % ROW_UNIT or not gate_up.is_contiguous():
            return None
        out, source = results.empty((rows, size), gate_up.dtype), (gate_up.data_ptr(), gate_up.dtype == torch.bfloat16)
        self._run("gate", "A gate", *source, GATINGS.index(kind), limit, alpha, out.data_ptr(), rows, size)
        return out

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor | None:
        """``x [T, heads, d]`` rotated as attention/rotation.py says, by ``cos`` and ``sin [T, 1, r]``; a
        new tensor. None where it has no such heads."""
        (rows, heads, width), half = x.shape, cos.shape[2] // 2
        if not (x.dtype == cos.dtype == sin.dtype) or x.dtype not in DTYPES or half % ROW_UNIT:
            return None
        if x.stride(2) != 1 or x.stride(1) != width or cos.stride() != sin.stride() or cos.stride(2) != 1:
            return None
        out, source = results.empty(x.shape, x.dtype), (x.data_ptr(), x.stride(0), x.dtype == torch.bfloat16)
        angles = (cos.data_ptr(), sin.data_ptr(), cos.stride(0))
        self._run("rotate", "A rotation", *source, *angles, out.data_ptr(), rows, heads, width, half)
        return out

    def store_rows(self, k: Tensor, v: Tensor, kv: PackedKV, slots: Tensor) -> bool:
        """Write ``k [T, H, d_k]`` and ``v [T, H, d_v]`` to ``slots [T]`` int64 of dense arenas; False where they do not
        lie as there, and nothing is written."""
        parts = list[int]()
        for rows, arena in ((k, kv.k), (v, kv.v)):
            size, width = arena.stride(0), rows.shape[2]
            whole = rows.stride(2) == 1 and rows.stride(1) == width and arena.is_contiguous()
            if not whole or rows.dtype != arena.dtype or rows.shape[1] * width != size:
                return False
            bytes_each = rows.element_size()
            parts += (rows.data_ptr(), rows.stride(0) * bytes_each, size * bytes_each, arena.data_ptr())
        self._run("store_rows", "Writing keys and values", *parts, slots.data_ptr(), len(slots))
        return True

    def hadamard(self, x: Tensor, size: int) -> Tensor | None:
        """``x [T, heads, d]`` mixed as layers/hadamard.py says, ``size`` numbers at a time; a new
        tensor. None where it has no such heads."""
        (rows, heads, width), whole = x.shape, x.stride(2) == 1 and x.stride(1) == x.shape[2]
        if x.dtype not in DTYPES or size % ROW_UNIT or width > WIDEST_HEAD or not whole:
            return None
        out = results.empty(x.shape, x.dtype)
        source = x.data_ptr(), x.stride(0), x.dtype == torch.bfloat16
        self._run("hadamard", "A Hadamard transform", *source, out.data_ptr(), rows, heads, width, size)
        return out

    def has_delta_rule(self, shape: RecurrentShape, dtype: torch.dtype) -> bool:
        """Return True if :meth:`delta_rule` serves layers of this shape."""
        return dtype in DTYPES and (shape.key | shape.value) % ROW_UNIT == 0 and shape.kernel <= MOST_TAPS

    def delta_rule(
        self,
        mixed: Tensor,
        gates: Tensor,
        weights: DeltaWeights,
        shape: RecurrentShape,
        states: LayerStates,
        runs: StateRuns,
    ) -> Tensor | None:
        """Same as `engine.compute.layers.recurrent.delta_rule.delta_rule`; None if dtype, head widths or taps do not
        fit."""
        if not self.has_delta_rule(shape, mixed.dtype) or gates.dtype != mixed.dtype:
            return None
        mixed, gates = mixed.contiguous(), gates.contiguous()
        out = results.empty((mixed.shape[0], shape.value_heads * shape.value), mixed.dtype)
        if runs.rows < len(out):
            out[runs.rows :] = 0
        tables = RunTables.of(runs)
        problem = delta_of((mixed, gates, out), weights, shape, states, tables)
        self._run("delta_rule", "The delta rule", ctypes.byref(problem))
        return out

    def has_convolution(self, channels: int, kernel: int) -> bool:
        """Return True if :meth:`convolve` serves convolutions of so many taps over so many channels."""
        return channels % ROW_UNIT == 0 and kernel <= MOST_TAPS

    def convolve(
        self,
        inputs: Tensor,
        taps: Tensor,
        tails: Tensor,
        runs: StateRuns,
        bias: Tensor | None = None,
        silu: bool = False,
    ) -> Tensor | None:
        """`convolve` of layers/recurrent/convolution.py, and what is added to its sums, and their SiLU; None where
        channels or taps do not fit (:meth:`has_convolution`), or the dtype does not."""
        (kernel, channels), apart = taps.shape, inputs.stride(1) != 1
        known = inputs.dtype in DTYPES and tails.dtype == inputs.dtype
        if apart or not known or not self.has_convolution(channels, kernel):
            return None
        out, tables = results.empty(inputs.shape, torch.float32), RunTables.of(runs)
        problem = convolution_of(inputs, taps, bias, tails, out, tables, silu)
        self._run("convolve_runs", "A convolution", ctypes.byref(problem))
        return out

    def has_state_space(self, shape: MambaShape) -> bool:
        """Return True if :meth:`state_space` serves layers of this shape."""
        return shape.width % ROW_UNIT == 0

    def state_space(
        self, seen: Tensor, steps: Tensor, weights: MambaWeights, shape: MambaShape, matrices: Tensor, runs: StateRuns
    ) -> Tensor | None:
        """``[rows, heads, width]`` float32 as `engine.compute.layers.recurrent.state_space.state_space` gives it, from
        what is ``seen [rows, channels]`` behind the convolution and its SiLU; None where it has no heads of such a
        width, or the dtype of steps does not fit."""
        if not self.has_state_space(shape) or steps.dtype not in DTYPES or steps.stride(1) != 1:
            return None
        seen, tables = seen.contiguous(), RunTables.of(runs)
        out = results.empty((len(seen), shape.heads, shape.width), seen.dtype)
        problem = space_of(seen, steps, weights, shape, out, matrices, tables)
        self._run("state_space", "The state space model", ctypes.byref(problem))
        return out

    def gated_norm(self, read: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor | None:
        """``read [rows, groups * size]`` float32 times the SiLU of ``gate`` alike, each group then normalised by its
        root mean square and multiplied by ``weight [groups, size]``; a new tensor in the dtype of gate. None where it
        has no such rows."""
        if gate.dtype not in DTYPES or weight.shape[1] % ROW_UNIT or gate.stride(1) != 1 or not read.is_contiguous():
            return None
        out, half = results.empty(read.shape, gate.dtype), gate.dtype == torch.bfloat16
        tensors = (read, gate, weight, out)
        problem = GatedNorm(*(each.data_ptr() for each in tensors), *weight.shape, gate.stride(0), eps, half)
        self._run("gated_norm", "A norm", ctypes.byref(problem), len(read))
        return out

    def route(self, problem: RouterArguments) -> None:
        """Choose the experts of some rows. The size of these is a multiple of 16 where the problem has a weight."""
        self._run("route", "Choosing experts", ctypes.byref(problem))

    def experts(self, problem: ExpertsArguments) -> None:
        """Compute the experts that some rows ask, whose widths are multiples of 16."""
        self._run("experts", "A mixture of experts", ctypes.byref(problem))

    def attend(self, problem: Attend) -> None:
        """Attend natively."""
        self._run("attend_rows", "The native attention", ctypes.byref(problem))

    def chain_rows(self, row_start: Tensor, kv_len: Tensor, stride: int, window: int | None, rows: int) -> Tensor:
        """``[rows, 3]`` int64 as `attend_of` takes them, of chains as ``row_start [S + 1]`` and ``kv_len [S]`` int32
        say, whose tables of pages are ``stride`` numbers apart."""
        out = torch.empty(rows, 3, dtype=torch.int64)
        chains = (row_start.data_ptr(), kv_len.data_ptr(), len(kv_len))
        self._run("chain_rows", "Attention", *chains, stride, window or 0, out.data_ptr())
        return out

    def tree_rows(
        self, row_start: Tensor, kv_len: Tensor, stride: int, window: int | None, ancestors: Tensor, keys: KeyLimits
    ) -> tuple[Tensor, Tensor]:
        """``rows [T, 3]`` and ``trees [T, 2]`` int64 as `attend_of` takes them, of a step with trees: ``ancestors
        [T]`` int64, see `Batch`. The rest as for :meth:`chain_rows`; ``keys`` are limits on what rows see, which no
        tape keeps."""
        assert current() is None or all(each is None for each in keys[:2])
        rows, trees = (torch.empty(len(ancestors), width, dtype=torch.int64) for width in (3, 2))
        bounds = [None if each is None else np.ascontiguousarray(each, dtype=np.int64) for each in keys[:2]]
        limits = (None if each is None else each.ctypes.data for each in bounds)
        tables = (row_start.data_ptr(), kv_len.data_ptr(), len(kv_len), stride, window or 0, ancestors.data_ptr())
        self._run("tree_rows", "Attention", *tables, *limits, keys[2], rows.data_ptr(), trees.data_ptr())
        return rows, trees

    def attend_chosen(self, problem: Attend, bounds: Tensor) -> None:
        """Same as :meth:`attend`, each head over its row's last page and those before it that ``bounds`` rank highest.

        Keys and values are dense and have these bounds, ``d_k = d_v`` up to 256. The problem's ``rows [n, 3]`` are
        where a row's pages begin, how many of them a head reads, and where its keys stop.
        """
        quest = QuestArguments(problem, bounds.data_ptr())
        self._run("quest_rows", "Choosing pages", ctypes.byref(quest))

    def unpack_pages(self, kv: PackedKV, pages: Tensor, k: Tensor, v: Tensor) -> None:
        """Pages of a packed kind as numbers: ``k [n * 16, H_kv, d_k]`` and ``v [n * 16, H_kv, d_v]``, both
        bfloat16 or both float32.

        ``pages [n]`` int32, contiguous. Widths are multiples of 32 up to 256. Of kind "kivi" they are pairs, each of
        an even page of its sequence and the odd one after it: n is even.
        """
        assert kv.kind in PACKED_KINDS
        assert kv.kind != "kivi" or pages.shape[0] % 2 == 0
        problem = attend_of_pages(kv, k.dtype)
        taken = (ctypes.byref(problem), pages.data_ptr(), pages.shape[0])
        self._run("unpack_pages", "Unpacking pages", *taken, k.data_ptr(), v.data_ptr())


class LibraryLookup(NamedTuple):
    """Either a library or why there is none."""

    library: NativeLibrary | None
    reason: str


def find() -> LibraryLookup:
    """The library of this installation with the instructions that KVASIR_NATIVE allows, loaded once a process.

    Raises :class:`NoSuchInstructions` where they are not to be had.
    """
    return find_with(wanted())


@functools.cache
def find_with(instructions: str) -> LibraryLookup:
    """Same as :func:`find`, with one of `instructions.SETS`, AUTO or OFF. Raises :class:`NoSuchInstructions`."""
    if instructions == OFF:
        return LibraryLookup(None, f"{VARIABLE}={OFF} leaves Kvasir's native code out")
    plain = load(SETS[PORTABLE])
    if instructions == AUTO:
        # Of those that the processor has, the best one that is there: a package brings all, a source tree the best.
        found = (load(each) for each in SETS.values() if each.name != PORTABLE and runs_here(each))
        return next((lookup for lookup in found if lookup.library is not None), plain)
    if plain.library is not None and not runs_here(SETS[instructions]):
        raise NoSuchInstructions(f"{VARIABLE}={instructions} cannot be had: this processor lacks those instructions.")
    lookup = plain if plain.library is None else load(SETS[instructions])
    if lookup.library is None:
        raise NoSuchInstructions(f"{VARIABLE}={instructions} cannot be had: {lookup.reason}.")
    return lookup


def loaded() -> NativeLibrary:
    """The library that layers use which :func:`declines` let pass."""
    library, reason = find()
    assert library is not None, reason
    return library


def load(instructions: InstructionSet) -> LibraryLookup:
    """The library of a set that this processor has."""
    file = library_file(instructions)
    if not file.is_file():
        return LibraryLookup(None, why_not_built())
    try:
        handle = opened(file)
        if built_from(handle) != source_hash(instructions):
            return LibraryLookup(None, f"Kvasir's native code was built from another version (run {_BUILD})")
        return LibraryLookup(NativeLibrary(handle, instructions), "")
    except (OSError, AttributeError) as error:
        return LibraryLookup(None, f"Kvasir's native code does not load here ({error})")


def declines(dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason native products do not serve a model that runs in ``dtype``; None when they do."""
    if device.type not in ("cpu", "meta"):
        return "the model is not on a CPU"
    if dtype not in DTYPES:
        return f"it needs bfloat16 or float32 activations and the model runs in {str(dtype).removeprefix('torch.')}"
    library, reason = find()
    return reason if library is None else None

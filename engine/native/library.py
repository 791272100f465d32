"""The compiled native code, or the reason why there is none."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.cache.stores.packed import PACKED_KINDS, PackedKV
from engine.native.attention import Quest, attend_of, attend_of_pages, fields
from engine.native.build import built_from, library_file, runs_here, source_hash
from engine.native.instructions import (
    AUTO,
    AVX512_BF16,
    OFF,
    PORTABLE,
    SETS,
    VARIABLE,
    InstructionSet,
    NoSuchInstructions,
    lack_of,
    wanted,
)

NEEDS = {torch.bfloat16: "AVX512-BF16", torch.float32: ""}
"""The types of activations that there are products for, and the instructions that these need."""
_BUILD = "python -m engine.native.build"


class Int4Weights(ctypes.Structure):
    """``Int4`` of int4.c: addresses of the tensors that hold a layer, and its sizes."""

    product, result = "The native 4-bit product", None  # what it is called, and the dtype of what comes out: x's own
    _fields_ = (
        *fields(ctypes.c_void_p, "codes", "scales", "zeros"),
        *fields(ctypes.c_int64, "in_features", "out_features", "group", "bfloat16_scales"),
    )


class Ggml(ctypes.Structure):
    """``Ggml`` of ggml.h: rows of blocks of ggml's ``type``."""

    product, result = "The native product with GGUF blocks", torch.float32
    _fields_ = (
        *fields(ctypes.c_void_p, "data"),
        *fields(ctypes.c_int64, "in_features", "out_features", "type", "row_bytes"),
    )


class Grouped(ctypes.Structure):
    """``Grouped`` of grouped.h: codes in lanes of 64 output features, with their scales."""

    product, result = "The native product with grouped codes", torch.float32
    _fields_ = (
        *fields(ctypes.c_void_p, "codes", "scales", "zeros", "table", "nested_table", "nested_scales"),
        *fields(ctypes.c_int64, "in_features", "out_features", "group", "scale_type", "nested_size"),
        *fields(ctypes.c_float, "nested_offset", "factor"),
    )


_PRODUCTS: dict[type[ctypes.Structure], str] = {Int4Weights: "int4", Ggml: "ggml", Grouped: "grouped"}
_ADDRESS, _SIZE, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "attend_rows": (_INT, _ADDRESS, _INT),
    "quest_rows": (_INT, _ADDRESS, _INT),
    "unpack_pages": (None, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _ADDRESS, _INT),
    "prefer_huge_pages": (None, _ADDRESS, _SIZE),
    "reorder_codes": (None, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _SIZE, _INT, _ADDRESS, _INT),
    "ggml_round_bf16": (None, _ADDRESS, _SIZE, _SIZE, _ADDRESS, _INT),
    **dict.fromkeys(("grouped_write_f32", "grouped_write_bf16"), (_INT, _ADDRESS, _SIZE, _SIZE, _ADDRESS, _INT)),
    **dict.fromkeys(
        (f"{kind}_matmul_{dtype}" for kind in _PRODUCTS.values() for dtype in ("f32", "bf16")),
        (_INT, _ADDRESS, _ADDRESS, _ADDRESS, _SIZE, _INT),
    ),
}
"""What each function returns, then what it takes."""
_ONLY_BFLOAT16 = ("quest_rows", *(name for name in _FUNCTIONS if name.endswith("_bf16")))
"""Those that are there only with AVX512-BF16."""
_SUFFIX = {torch.float32: "f32", torch.bfloat16: "bf16"}


class Library:
    """The loaded library. Torch is loaded before it, so both share one OpenMP runtime and its threads."""

    def __init__(self, handle: ctypes.CDLL, instructions: InstructionSet) -> None:
        self.set = instructions
        self._functions: dict[str, Any] = {}
        for name, (result, *arguments) in _FUNCTIONS.items():
            if name not in _ONLY_BFLOAT16 or self.multiplies_bfloat16:
                function = self._functions[name] = getattr(handle, name)
                function.restype, function.argtypes = result, arguments
        self._products = {
            (weights, dtype): self._functions[name]
            for weights, kind in _PRODUCTS.items()
            for dtype, suffix in _SUFFIX.items()
            if (name := f"{kind}_matmul_{suffix}") in self._functions
        }

    @property
    def instructions(self) -> str:
        """The instructions in use, for a person to read."""
        return self.set.title

    @property
    def multiplies_bfloat16(self) -> bool:
        return self.set.name == AVX512_BF16

    def lacks(self, dtype: torch.dtype) -> str | None:
        """Why its products in ``dtype``, one of :data:`NEEDS`, are not to be used; None when they are."""
        return lack_of(NEEDS[dtype]) if NEEDS[dtype] and not self.multiplies_bfloat16 else None

    def _run(self, name: str, what: str, *arguments: int | None) -> None:
        """Call a function, which takes the number of threads last. Raises MemoryError where it has no room to work."""
        if self._functions[name](*arguments, torch.get_num_threads()):
            raise MemoryError(f"{what} ran out of memory.")

    def matmul(self, weights: Int4Weights | Ggml | Grouped, x: Tensor) -> Tensor:
        """``x [T, in_features]``, contiguous, bfloat16 or float32 -> ``[T, out_features]``, float32 or as ``x``."""
        out = x.new_empty(x.shape[0], weights.out_features, dtype=weights.result)
        product, threads = self._products[type(weights), x.dtype], torch.get_num_threads()
        if product(ctypes.addressof(weights), x.data_ptr(), out.data_ptr(), x.shape[0], threads):
            raise MemoryError(f"{weights.product} ran out of memory.")
        return out

    def ggml_round(self, weights: Ggml, start: int, stop: int, out: Tensor) -> None:
        """Output features ``[start, stop)`` of the weights into ``out [stop - start, in_features]`` bfloat16."""
        self._run("ggml_round_bf16", "Rounding blocks", ctypes.addressof(weights), start, stop, out.data_ptr())

    def reordered(self, words: Tensor, order: Tensor, bits: int) -> Tensor:
        """``words [W, n]`` int32 of 32 / bits codes each (bits 4 or 8; the first lowest) -> the same with code
        ``order[k]`` of a column at place k. ``order`` int32 is a permutation of all W * 32 / bits places."""
        words = words if words.stride(1) == 1 or words.shape[1] == 1 else words.contiguous()
        out = words.new_empty(words.shape)
        assert order.shape == (words.shape[0] * 32 // bits,)
        assert order.dtype == torch.int32
        source = (words.data_ptr(), words.stride(0), order.data_ptr())
        self._run("reorder_codes", "Reordering codes", *source, *words.shape, bits, out.data_ptr())
        return out

    def grouped_write(self, weights: Grouped, start: int, stop: int, out: Tensor) -> None:
        """Blocks ``[start, stop)`` of 64 output features into ``out [in_features, 64 (stop - start)]``, which is W^T,
        in float32 exactly or rounded once to bfloat16."""
        name = f"grouped_write_{_SUFFIX[out.dtype]}"
        self._run(name, "Unpacking grouped codes", ctypes.addressof(weights), start, stop, out.data_ptr())

    def attend(
        self, q: Tensor, kv: PackedKV, pages: Tensor, rows: Tensor, scale: float, out: Tensor, lse: Tensor | None = None
    ) -> None:
        """Attention of ``q [T, H, d_k]`` over paged keys and values, numbers in bfloat16 or codes (`PackedKV`).

        ``pages`` int32 holds page numbers; ``rows [n, 3]`` int64 says for each of the first n rows where its pages
        begin and which of its keys [first, stop) it sees. Writes the first n rows of ``out [T, H, d_v]``, bfloat16
        and contiguous like q. Widths are multiples of 32: d_k up to 576, of codes up to 256. ``lse [T, H]`` float32,
        if given, gets its first n rows written too.
        """
        problem = attend_of(q, kv, pages, rows, scale, out, lse)
        self._run("attend_rows", "The native attention", ctypes.addressof(problem))

    def attend_chosen(
        self, q: Tensor, kv: PackedKV, pages: Tensor, rows: Tensor, scale: float, out: Tensor, lse: Tensor
    ) -> None:
        """As :meth:`attend`, each head over its row's last page and those before it that its bounds rank highest.

        ``kv`` is dense and has bounds, ``d_k = d_v`` up to 256. ``rows [n, 3]``: where a row's pages begin, how many
        of them a head reads, and where its keys stop.
        """
        assert kv.bounds is not None
        problem = Quest(attend_of(q, kv, pages, rows, scale, out, lse), kv.bounds.data_ptr())
        self._run("quest_rows", "Choosing pages", ctypes.addressof(problem))

    def unpack_pages(self, kv: PackedKV, pages: Tensor, k: Tensor, v: Tensor) -> None:
        """Pages of a packed kind as numbers: ``k [n * 16, H_kv, d_k]`` and ``v [n * 16, H_kv, d_v]``, bfloat16.

        ``pages [n]`` int32, contiguous. Widths are multiples of 32 up to 256. Of kind "kivi" they are pairs, each of
        an even page of its sequence and the odd one after it: n is even.
        """
        assert kv.kind in PACKED_KINDS
        assert kv.kind != "kivi" or pages.shape[0] % 2 == 0
        problem = attend_of_pages(kv)
        taken = (ctypes.addressof(problem), pages.data_ptr(), pages.shape[0])
        self._run("unpack_pages", "Unpacking pages", *taken, k.data_ptr(), v.data_ptr())

    def prefer_huge_pages(self, tensor: Tensor) -> None:
        """Let the system back ``tensor`` with huge pages; only worth asking before it is first written."""
        self._functions["prefer_huge_pages"](tensor.data_ptr(), tensor.nbytes)


class LibraryLookup(NamedTuple):
    """Either a library or why there is none."""

    library: Library | None
    reason: str


def find() -> LibraryLookup:
    """The library of this installation with the instructions that KVASIR_NATIVE allows, loaded once a process.

    Raises :class:`NoSuchInstructions` where they are not to be had.
    """
    return find_with(wanted())


@functools.cache
def find_with(instructions: str) -> LibraryLookup:
    """As :func:`find`, with one of `engine.native.instructions.SETS`, AUTO or OFF."""
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


def loaded() -> Library:
    """The library that layers use which :func:`declines` let pass."""
    library, reason = find()
    assert library is not None, reason
    return library


def load(instructions: InstructionSet) -> LibraryLookup:
    """The library of a set that this processor has."""
    file = library_file(instructions)
    if not file.is_file():
        return LibraryLookup(None, f"Kvasir's native code is not built ({_BUILD} does it)")
    try:
        handle = ctypes.CDLL(str(file))
        if built_from(handle) != source_hash(instructions):
            return LibraryLookup(None, f"Kvasir's native code was built from another version (run {_BUILD})")
        return LibraryLookup(Library(handle, instructions), "")
    except (OSError, AttributeError) as error:
        return LibraryLookup(None, f"Kvasir's native code does not load here ({error})")


def declines(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why native products do not serve a model that runs in ``dtype``; None when they do."""
    if device.type not in ("cpu", "meta"):
        return "the model is not on a CPU"
    if dtype not in NEEDS:
        return f"it needs bfloat16 or float32 activations and the model runs in {str(dtype).removeprefix('torch.')}"
    library, reason = find()
    if library is None:
        return reason
    return library.lacks(dtype)

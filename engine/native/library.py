"""The compiled native code, or the reason why there is none."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.stores.packed import PACKED_KINDS, PackedKV
from engine.native.attention import Quest, attend_of, attend_of_pages
from engine.native.build import LIBRARY, PLAIN, built_from, source_hash
from engine.native.instructions import (
    AUTO,
    AVX2,
    AVX512_BF16,
    OFF,
    PORTABLE,
    VARIABLE,
    NoSuchInstructions,
    lack_of,
    wanted,
)

FLOAT32, BFLOAT16, PLAIN_C = 1, 2, 4
"""Bits of ``capabilities()``: products this processor can run, and that they are without its own instructions."""
NEEDS = {torch.bfloat16: (BFLOAT16, "AVX512-BF16"), torch.float32: (FLOAT32, "AVX2 and FMA")}
_USED = {AVX512_BF16: FLOAT32 | BFLOAT16, AVX2: FLOAT32, PORTABLE: FLOAT32 | PLAIN_C}
"""The capabilities that each value of KVASIR_NATIVE needs and leaves."""


_BUILD = "python -m engine.native.build"


class Int4Weights(ctypes.Structure):
    """``Int4`` of int4.c: addresses of the tensors that hold a layer, and its sizes."""

    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("zeros", ctypes.c_void_p),
        ("in_features", ctypes.c_int64),
        ("out_features", ctypes.c_int64),
        ("group", ctypes.c_int64),
        ("bfloat16_scales", ctypes.c_int64),
    )


class Ggml(ctypes.Structure):
    """``Ggml`` of ggml.h: rows of blocks of ggml's ``type``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("in_features", ctypes.c_int64),
        ("out_features", ctypes.c_int64),
        ("type", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
    )


class Grouped(ctypes.Structure):
    """``Grouped`` of grouped.h: codes in lanes of 64 output features, with their scales."""

    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("zeros", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("nested_table", ctypes.c_void_p),
        ("nested_scales", ctypes.c_void_p),
        ("in_features", ctypes.c_int64),
        ("out_features", ctypes.c_int64),
        ("group", ctypes.c_int64),
        ("scale_type", ctypes.c_int64),
        ("nested_size", ctypes.c_int64),
        ("nested_offset", ctypes.c_float),
        ("factor", ctypes.c_float),
    )


class Library:
    """The loaded library. Torch is loaded before it, so both share one OpenMP runtime and its threads."""

    def __init__(self, handle: ctypes.CDLL, capabilities: int) -> None:
        """``capabilities``: those to use of what ``handle`` can do here."""
        self.capabilities = capabilities
        self._attend = handle.attend_rows
        self._attend.argtypes = (ctypes.c_void_p, ctypes.c_int)
        self._attend.restype = ctypes.c_int
        self._unpack_pages = handle.unpack_pages
        count_and_results = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        self._unpack_pages.argtypes = (ctypes.c_void_p, ctypes.c_void_p, *count_and_results)
        self._unpack_pages.restype = None
        self._prefer_huge_pages = handle.prefer_huge_pages
        self._prefer_huge_pages.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        self._prefer_huge_pages.restype = None
        self._reorder = handle.reorder_codes
        sizes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_int)
        addresses = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self._reorder.argtypes = (*addresses, *sizes, ctypes.c_void_p, ctypes.c_int)
        self._reorder.restype = None
        # The bfloat16 ones are there only on x86-64.
        self._products = {torch.float32: handle.int4_matmul_f32}
        self._ggml = {torch.float32: handle.ggml_matmul_f32}
        self._grouped = {torch.float32: handle.grouped_matmul_f32}
        self._grouped_write = {torch.float32: handle.grouped_write_f32}
        if self.capabilities & BFLOAT16:
            self._products[torch.bfloat16] = handle.int4_matmul_bf16
            self._ggml[torch.bfloat16] = handle.ggml_matmul_bf16
            self._grouped[torch.bfloat16] = handle.grouped_matmul_bf16
            self._grouped_write[torch.bfloat16] = handle.grouped_write_bf16
            self._quest = handle.quest_rows
            self._quest.argtypes = (ctypes.c_void_p, ctypes.c_int)
            self._quest.restype = ctypes.c_int
            self._ggml_round = handle.ggml_round_bf16
            self._ggml_round.argtypes = (
                ctypes.c_void_p,
                ctypes.c_int64,
                ctypes.c_int64,
                ctypes.c_void_p,
                ctypes.c_int,
            )
            self._ggml_round.restype = None
        for write in self._grouped_write.values():
            write.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int)
            write.restype = ctypes.c_int
        for product in (*self._products.values(), *self._ggml.values(), *self._grouped.values()):
            product.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int)
            product.restype = ctypes.c_int

    @property
    def instructions(self) -> str:
        """The instructions in use, for a person to read."""
        if self.capabilities & PLAIN_C:
            return "plain C"
        return "AVX512-BF16 and AVX2" if self.capabilities & BFLOAT16 else "AVX2" if self.capabilities else "none"

    def lacks(self, dtype: torch.dtype) -> str | None:
        """Why its products in ``dtype``, one of :data:`NEEDS`, are not to be used; None when they are."""
        bit, name = NEEDS[dtype]
        return None if self.capabilities & bit else lack_of(name)

    def int4_matmul(self, weights: Int4Weights, x: Tensor) -> Tensor:
        """``x [T, in_features]``, contiguous, bfloat16 or float32 -> ``[T, out_features]`` in the same."""
        rows = x.shape[0]
        out = x.new_empty(rows, weights.out_features)
        product, threads = self._products[x.dtype], torch.get_num_threads()
        if product(ctypes.addressof(weights), x.data_ptr(), out.data_ptr(), rows, threads):
            raise MemoryError("The native 4-bit product ran out of memory.")
        return out

    def ggml_matmul(self, weights: Ggml, x: Tensor) -> Tensor:
        """``x [T, in_features]``, contiguous, bfloat16 or float32 -> ``[T, out_features]`` float32."""
        rows = x.shape[0]
        out = x.new_empty(rows, weights.out_features, dtype=torch.float32)
        product, threads = self._ggml[x.dtype], torch.get_num_threads()
        if product(ctypes.addressof(weights), x.data_ptr(), out.data_ptr(), rows, threads):
            raise MemoryError("The native product with GGUF blocks ran out of memory.")
        return out

    def ggml_round(self, weights: Ggml, start: int, stop: int, out: Tensor) -> None:
        """Output features ``[start, stop)`` of the weights into ``out [stop - start, in_features]`` bfloat16."""
        self._ggml_round(ctypes.addressof(weights), start, stop, out.data_ptr(), torch.get_num_threads())

    def reordered(self, words: Tensor, order: Tensor, bits: int) -> Tensor:
        """``words [W, n]`` int32 of 32 / bits codes each (bits 4 or 8; the first lowest) -> the same with code
        ``order[k]`` of a column at place k. ``order`` int32 is a permutation of all W * 32 / bits places."""
        words = words if words.stride(1) == 1 or words.shape[1] == 1 else words.contiguous()
        out = words.new_empty(words.shape)
        assert order.shape == (words.shape[0] * 32 // bits,)
        assert order.dtype == torch.int32
        self._reorder(
            words.data_ptr(),
            words.stride(0),
            order.data_ptr(),
            *words.shape,
            bits,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def grouped_matmul(self, weights: Grouped, x: Tensor) -> Tensor:
        """``x [T, in_features]``, contiguous, bfloat16 or float32 -> ``[T, out_features]`` float32."""
        rows = x.shape[0]
        out = x.new_empty(rows, weights.out_features, dtype=torch.float32)
        product, threads = self._grouped[x.dtype], torch.get_num_threads()
        if product(ctypes.addressof(weights), x.data_ptr(), out.data_ptr(), rows, threads):
            raise MemoryError("The native product with grouped codes ran out of memory.")
        return out

    def grouped_write(self, weights: Grouped, start: int, stop: int, out: Tensor) -> None:
        """Blocks ``[start, stop)`` of 64 output features into ``out [in_features, 64 (stop - start)]``, which is W^T,
        in float32 exactly or rounded once to bfloat16."""
        write, threads = self._grouped_write[out.dtype], torch.get_num_threads()
        if write(ctypes.addressof(weights), start, stop, out.data_ptr(), threads):
            raise MemoryError("Unpacking grouped codes ran out of memory.")

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
        if self._attend(ctypes.addressof(problem), torch.get_num_threads()):
            raise MemoryError("The native attention ran out of memory.")

    def attend_chosen(
        self, q: Tensor, kv: PackedKV, pages: Tensor, rows: Tensor, scale: float, out: Tensor, lse: Tensor
    ) -> None:
        """As :meth:`attend`, each head over its row's last page and those before it that its bounds rank highest.

        ``kv`` is dense and has bounds, ``d_k = d_v`` up to 256. ``rows [n, 3]``: where a row's pages begin, how many
        of them a head reads, and where its keys stop.
        """
        assert kv.bounds is not None
        problem = Quest(attend_of(q, kv, pages, rows, scale, out, lse), kv.bounds.data_ptr())
        if self._quest(ctypes.addressof(problem), torch.get_num_threads()):
            raise MemoryError("Choosing pages ran out of memory.")

    def unpack_pages(self, kv: PackedKV, pages: Tensor, k: Tensor, v: Tensor) -> None:
        """Pages of a packed kind as numbers: ``k [n * 16, H_kv, d_k]`` and ``v [n * 16, H_kv, d_v]``, bfloat16.

        ``pages [n]`` int32, contiguous. Widths are multiples of 32 up to 256. Of kind "kivi" they are pairs, each of
        an even page of its sequence and the odd one after it: n is even.
        """
        assert kv.kind in PACKED_KINDS
        assert kv.kind != "kivi" or pages.shape[0] % 2 == 0
        problem = attend_of_pages(kv)
        self._unpack_pages(
            ctypes.addressof(problem),
            pages.data_ptr(),
            pages.shape[0],
            k.data_ptr(),
            v.data_ptr(),
            torch.get_num_threads(),
        )

    def prefer_huge_pages(self, tensor: Tensor) -> None:
        """Let the system back ``tensor`` with huge pages; only worth asking before it is first written."""
        self._prefer_huge_pages(tensor.data_ptr(), tensor.numel() * tensor.element_size())


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
    """As :func:`find`, with one of `engine.native.instructions.SETS`."""
    if instructions == OFF:
        return LibraryLookup(None, f"{VARIABLE}={OFF} leaves Kvasir's native code out")
    if instructions == AUTO:
        return load(LIBRARY)
    needed = _USED[instructions]
    found = load(PLAIN if instructions == PORTABLE else LIBRARY, needed)
    if found.library is None:
        raise NoSuchInstructions(f"{VARIABLE}={instructions} cannot be had: {found.reason}.")
    if found.library.capabilities != needed:
        raise NoSuchInstructions(f"{VARIABLE}={instructions} cannot be had: this processor lacks those instructions.")
    return found


def load(file: Path, allowed: int = -1) -> LibraryLookup:
    """The library in ``file``, of whose capabilities those ``allowed`` are used."""
    if not file.is_file():
        return LibraryLookup(None, f"Kvasir's native code is not built ({_BUILD} does it)")
    try:
        handle = ctypes.CDLL(str(file))
        if built_from(handle) != source_hash():
            return LibraryLookup(None, f"Kvasir's native code was built from another version (run {_BUILD})")
        capabilities = int(handle.capabilities())
        # Plain C is nothing to ask for by another name.
        return LibraryLookup(Library(handle, capabilities & (allowed | PLAIN_C)), "")
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

"""Choice of a packed linear layer's kernel: each kind has an ordered list of paths that may decline, reference last.

The same choice plans a layer (:func:`planned`, tensors without storage, for the device where it is to compute) and
builds it (:func:`built`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.linear import ggml, int4, int4_cuda, native
from engine.compute.layers.linear.base import Declined, Declines, LinearShape, Maker, PackedLinear, Path, Target
from engine.compute.layers.linear.blockwise import BlockwiseLinear
from engine.compute.layers.linear.coded import CodedLinear
from engine.compute.layers.linear.int8 import Int8Linear, Int8RowsLinear
from engine.compute.layers.linear.table import TableLinear
from engine.compute.layers.linear.triton import ggml as triton_ggml
from engine.compute.layers.linear.triton import int4 as triton_int4
from engine.compute.layers.linear.triton import int8 as triton_int8
from engine.compute.layers.linear.triton import table as triton_table
from engine.compute.layers.linear.triton.runtime import PATH as TRITON
from engine.compute.layers.numerics import Numerics
from engine.compute.native.gpu import TENSOR_CORES, TURING
from engine.compute.native.proof import machine_declines

_PATHS: dict[str, tuple[Path, ...]] = {}
_META = torch.device("meta")


class PathChoice(NamedTuple):
    """The path for a layer, and those before it with their reasons to decline."""

    path: Path
    declined: list[Declined]


def register(kind: str, paths: Sequence[Path]) -> None:
    """From now on layers whose shape is of ``kind`` get the first of ``paths`` that does not decline.

    The last one is the reference: it must serve every shape, on every device.
    """
    _PATHS[kind] = tuple(paths)


def choose(shape: LinearShape, target: Target, paths: Sequence[Path] | None = None) -> PathChoice:
    """The first path that does not decline; ``paths`` None: those of the kind. Raises ValueError if all decline."""
    declined: list[Declined] = []
    for path in _PATHS[shape.kind] if paths is None else paths:
        if path.device not in ("", target.device.type) or (path.own and not target.native):
            continue
        reason = path.declines(shape, target)
        if reason is None:
            return PathChoice(path, declined)
        declined.append(Declined(path.name, reason))
    raise ValueError(f"No path serves {shape} on {target.device}: {declined}")


def unfilled(shape: LinearShape, target: Target, device: torch.device) -> PackedLinear:
    """The layer that the choice makes for ``target``, its tensors allocated on ``device``."""
    path, declined = choose(shape, target)
    layer = path.make(shape, target, device)
    layer.declined = declined
    return layer


def planned(shape: LinearShape, bias: Tensor | None, target: Target) -> PackedLinear:
    """The layer on device "meta"."""
    layer = unfilled(shape, target, _META)
    layer.bias = bias
    return layer


def built(shape: LinearShape, parts: Sequence[Any], bias: Tensor | None, target: Target) -> PackedLinear:
    """The layer, filled with modules that are fused along their output features, and in all else as ``shape`` says."""
    layer = unfilled(shape, target, target.device)
    layer.fill(parts)
    layer.bias = bias
    return layer


def reference(shape: LinearShape, device: torch.device) -> PackedLinear:
    """The layer in float32 by the last path of its kind, not yet filled."""
    return _PATHS[shape.kind][-1].make(shape, Target(torch.float32, device, Numerics()), device)


def tied_head(table: ggml.GgmlEmbedding, target: Target) -> PackedLinear:
    """The output layer of a model that ties it to its token table: the same bytes, not held twice."""
    rows = table.data.shape[0]
    shape = LinearShape("ggml, shared", table.in_features, rows, block_type=table.type)
    layer = unfilled(shape, target, _META)
    if isinstance(layer, native.NativeGgmlLinear):
        if table.data.device.type != "meta":
            layer = native.NativeGgmlLinear(shape, target, target.device)
        table.hand_over(layer)
    else:
        assert isinstance(layer, ggml.GgmlLinear | triton_ggml.TritonGgmlLinear), "the kind's paths make these"
        layer.hold(table.read_in())
    layer.tied = True
    return layer


def _no_kernel(shape: LinearShape, target: Target) -> str:
    return "there is none for weights of this many bits"


def _triton(make: Maker, declines: Declines, oldest: tuple[int, int] = TENSOR_CORES) -> Path:
    """Kvasir's kernels on a GPU of compute capability ``oldest`` and newer ones.

    What the machine lacks comes before what ``declines`` says of the layer.
    """

    def reason(shape: LinearShape, target: Target) -> str | None:
        return machine_declines(target.dtype, target.device, oldest) or declines(shape, target)

    return Path(TRITON, make, reason, "cuda", own=True)


def _native(make: type[PackedLinear], declines: Declines) -> Path:
    """Kvasir's native code on a CPU."""
    return Path(make.path, make, declines, "cpu", own=True)


def _dequantise(make: Maker) -> Path:
    """The reference."""
    return Path(BlockwiseLinear.path, make)


_NATIVE_GGML = _native(native.NativeGgmlLinear, native.ggml_declines)

register("int4", [
    _triton(triton_int4.TritonInt4Linear, triton_int4.triton_declines, TURING),
    Path(int4_cuda.CudaInt4Linear.path, int4_cuda.CudaInt4Linear, int4_cuda.cuda_declines, "cuda"),
    Path(int4_cuda.MetalInt4Linear.path, int4_cuda.MetalInt4Linear, int4_cuda.metal_declines, "mps"),
    _native(native.NativeInt4Linear, native.native_declines),
    Path(int4.OPERATOR, functools.partial(int4.Int4Linear, operator=True), int4.operator_declines, "cpu"),
    _dequantise(int4.Int4Linear),
])  # fmt: skip
register("int8", [
    _triton(triton_int8.TritonInt8Linear, triton_int8.triton_declines),
    _native(native.NativeCodedLinear, native.coded_declines),
    _dequantise(Int8Linear),
])  # fmt: skip
register("int8 rows", [
    _triton(triton_int8.TritonInt8RowsLinear, triton_int8.triton_declines),
    _native(native.NativeInt8RowsLinear, native.native_declines),
    _dequantise(Int8RowsLinear),
])  # fmt: skip
register("coded", [
    Path(TRITON, CodedLinear, _no_kernel, "cuda", own=True),
    _native(native.NativeCodedLinear, native.coded_declines),
    _dequantise(CodedLinear),
])  # fmt: skip
register("table4", [
    _triton(triton_table.TritonTableLinear, triton_table.triton_declines, TURING),
    _native(native.NativeTableLinear, native.native_declines),
    _dequantise(TableLinear),
])  # fmt: skip
register("ggml", [
    _triton(triton_ggml.make, triton_ggml.triton_declines, TURING),
    _NATIVE_GGML,
    _dequantise(ggml.GgmlLinear),
])  # fmt: skip
register("ggml, shared", [
    _triton(triton_ggml.TritonGgmlLinear, functools.partial(triton_ggml.triton_declines, raw=True)),
    _NATIVE_GGML,
    _dequantise(ggml.GgmlLinear),
])  # fmt: skip

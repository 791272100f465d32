"""One projection of all experts on a GPU: their tensors one after another in memory, and one product for all rows.

A loaded expert's layer moves into its place before the next one is read, so that nothing is held twice but one expert;
afterwards each layer is a view, and still computes by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, overload

import torch
from torch import Tensor

from engine.compute.layers.linear.base import Declined, Linear, Target
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.linear.triton.runtime import FEW_ROWS, Tile, WideTile, tensor_cores, tile, wide_tiles
from engine.compute.native.gpu import capability
from engine.compute.native.proof import machine_declines
from engine.compute.native.triton_launch import Variants

PATH = "Triton kernel for all experts"
MOST = 4096
"""Experts that the kernel which chooses among them can hold."""
DENSE_PLANE = 64
"""Input features that a slice of an unpacked product takes in a turn."""
DENSE_TILES = (Tile(64, 32, 4), Tile(32, 32, 4))
"""The tiles of unpacked products for many rows."""


SortedCut = Tile | WideTile


class SortedRows(NamedTuple):
    """Rows sorted by expert for ``cut`` tiles (sorted_rows.py); ``places [T, k]`` says where each entry is."""

    entries: Tensor
    places: Tensor
    tiles: Tensor
    cut: SortedCut


def tile_for(each: float, wide: Sequence[SortedCut] = ()) -> SortedCut:
    """The tile for ``each`` rows that ask an expert, on average; some ask more. ``wide``: the largest first.

    Estimates, not yet measured.
    """
    if each <= 6 or not wide:
        return tile(1 if each <= 2 else 8 if each <= 6 else FEW_ROWS)
    return next((cut for cut in wide if 1.5 * cut.rows <= each), wide[-1])


def tile_count(entries: int, experts: int, rows: int) -> int:
    """The most runs of up to ``rows`` entries of one expert, of the experts that are asked."""
    return (entries + min(experts, entries) * (rows - 1)) // rows


class ExpertStack(Sequence[Linear]):
    """The layers of all experts, whose tensors are slices of ``[E, ...]``: kernels get the first one's address."""

    def __init__(self, layers: list[Linear]) -> None:
        self.layers, first = layers, layers[0]
        assert isinstance(first, TritonLinear | Dense)
        self.form: _Form = first if isinstance(first, TritonLinear) else _DenseForm(first)
        self.bias, self.out_features, self.in_features = first.bias, first.out_features, first.in_features
        self._own_path = first.path
        for layer in dict.fromkeys(layers):
            layer.path = PATH

    @overload
    def __getitem__(self, at: int) -> Linear: ...

    @overload
    def __getitem__(self, at: slice) -> list[Linear]: ...

    def __getitem__(self, at: int | slice) -> Linear | list[Linear]:
        return self.layers[at]

    def __len__(self) -> int:
        return len(self.layers)

    def multiply(self, x: Tensor, to: SortedRows, choices: int) -> Tensor:
        """``[n, N]`` of the entries in their sorted order; ``x [T, K]``, contiguous, or with ``choices`` 0 ``[n, K]``.

        In x's dtype; ``choices`` is the number of a row's entries.
        """
        cut, count = to.cut, len(to.entries)
        out = torch.empty(count, self.out_features, dtype=x.dtype, device=x.device)
        grid = (-(-self.out_features // cut.outputs), len(to.tiles), 1)
        args = (x, *self._held, self.bias, out, to.entries, to.tiles, self.out_features, *self.form.sizes())

        def keywords() -> dict[str, Any]:
            return {
                **self.form.constants(),
                **self.form.product_constants(x.dtype),
                "BIAS": self.bias is not None,
                "CHOICES": choices,
                "MB": cut.rows,
                "BN": cut.outputs,
                **self._constants(cut, x.dtype),
            }

        self._variants.launch(self._kernel(cut), (cut, choices, x.dtype), grid, args, keywords)
        return out

    def wide(self) -> tuple[SortedCut, ...]:
        """The tiles for many rows, the largest first, one of each number of rows; () where FIXED is the largest."""
        if isinstance(self.form, _DenseForm):
            return DENSE_TILES
        if not isinstance(self.form, PlaneLinear) or not tensor_cores(self.form.device):
            return ()
        tiles = wide_tiles(capability(self.form.device))
        return tuple(cut for place, cut in enumerate(tiles) if all(cut.rows != each.rows for each in tiles[:place]))

    def _kernel(self, cut: SortedCut) -> Any:
        if isinstance(cut, Tile):
            return self.form.kernels().multiply_sorted
        from engine.compute.layers.linear.triton.kernels import gemm

        return gemm.gemm_sorted

    def _constants(self, cut: SortedCut, dtype: torch.dtype) -> dict[str, Any]:
        if isinstance(cut, Tile):
            return {"SLICES": cut.slices, "num_warps": cut.slices, "num_stages": self.form.stages(cut)}
        assert isinstance(self.form, PlaneLinear)
        return self.form.wide_constants(cut, dtype)

    def part(self, expert: int, start: int, stop: int) -> tuple[Tensor, Tensor | float]:
        """Some output features of an expert by the definition: ``W [stop - start, K]`` and bias, float64 on the CPU."""
        layer = self.layers[expert]
        assert isinstance(layer, TritonLinear | Dense)
        weight = layer.weight[start:stop] if isinstance(layer, Dense) else layer.rows(start, stop, torch.float32)
        return weight.double().cpu(), 0.0 if layer.bias is None else layer.bias[start:stop].double().cpu()

    def variant(self) -> Hashable:
        """Equal for stacks that one kernel computes, all of it."""
        constants = tuple(sorted(self.form.constants().items()))
        return type(self.form), constants, self.form.sizes(), self.out_features, len(self), self.bias is not None

    def decline(self, reason: str) -> None:
        """Each layer is to be served by itself."""
        for layer in dict.fromkeys(self.layers):
            layer.path = self._own_path
            _decline(layer, reason)

    @functools.cached_property
    def _held(self) -> tuple[Tensor | None, ...]:
        return self.form.tensors()

    @functools.cached_property
    def _variants(self) -> Variants:
        return Variants()


class _Form(Protocol):
    """Launch arguments of a kernel, as in :class:`TritonLinear`."""

    def kernels(self) -> Any: ...

    def tensors(self) -> tuple[Tensor | None, ...]: ...

    def sizes(self) -> tuple[int | float, ...]: ...

    def constants(self) -> dict[str, Any]: ...

    def product_constants(self, dtype: torch.dtype) -> dict[str, Any]: ...

    def stages(self, cut: Tile) -> int: ...


class _DenseForm:
    """Unpacked weights."""

    def __init__(self, layer: Dense) -> None:
        self.layer = layer

    def kernels(self) -> Any:
        from engine.compute.layers.linear.triton.kernels import dense16

        return dense16

    def tensors(self) -> tuple[Tensor | None, ...]:
        return (self.layer.weight,)

    def sizes(self) -> tuple[int | float, ...]:
        return (self.layer.in_features,)

    def constants(self) -> dict[str, Any]:
        return {"PLANE": DENSE_PLANE}

    def product_constants(self, dtype: torch.dtype) -> dict[str, Any]:
        # A turn of the loop takes as much as all slices together.
        return {"PADDED": self.layer.in_features % (4 * DENSE_PLANE) != 0}

    def stages(self, cut: Tile) -> int:
        return cut.stages


def stacked(layers: Iterable[Linear], count: int, target: Target) -> Sequence[Linear]:
    """The layers of ``count`` experts, which come one after another, as they will be served.

    An :class:`ExpertStack`; or a list of them, each with the reason why it is none, except where the target has no such
    kernel at all. Layers on device "meta" are planned and may be the same one many times.
    """
    if target.device.type != "cuda" or not target.native:
        return list(layers)
    made: list[Linear] = []
    room: dict[str, Tensor] = {}
    reason = machine_declines(target.dtype, target.device)
    for layer in layers:
        if not made or layer is not made[-1]:
            reason = reason or _declines(layer, made[0] if made else layer, target)
            if reason is None:
                _move(layer, room, len(made), count)
        made.append(layer)
    if reason is None and count <= MOST:
        return ExpertStack(made)
    for layer in dict.fromkeys(made):
        if room:
            _move_out(layer)
        _decline(layer, reason or f"there are more than {MOST} experts")
    return made


def _declines(layer: Linear, first: Linear, target: Target) -> str | None:
    """Reason a layer cannot be one of those after ``first``; None when it can."""
    if not isinstance(layer, TritonLinear | Dense):
        return f"there is none for layers that use {layer.path}"
    if isinstance(layer, Dense) and layer.weight.dtype != target.dtype:
        return "the weights have another dtype than the model"
    if isinstance(layer, TritonLinear) and layer.order is not None:
        return "its groups are not runs of input features"
    if isinstance(layer, PlaneLinear) and layer.form.scale == "nested":
        return "its magnitudes are packed themselves"
    return None if _alike(layer) == _alike(first) else "not all experts are packed alike"


def _alike(layer: Linear) -> Hashable:
    """Equal for layers that one kernel can compute together."""
    if not isinstance(layer, TritonLinear | Dense):
        return None
    tensors = [(name, tensor.shape, tensor.dtype) for name, tensor in _tensors(layer)]
    if isinstance(layer, Dense):
        return Dense, tuple(tensors)
    # A kernel looks codes up in the table that it was compiled with.
    form = layer.form if isinstance(layer, PlaneLinear) else None
    return type(layer), tuple(tensors), tuple(sorted(layer.constants().items())), layer.sizes(), form


def _tensors(layer: TritonLinear | Dense) -> list[tuple[str, Tensor]]:
    """All that the layer holds, by its attributes."""
    names = ("weight", "bias") if isinstance(layer, Dense) else (*layer.held, "bias")
    found = [(name, getattr(layer, name)) for name in names]
    return [(name, tensor) for name, tensor in found if tensor is not None]


def _move(layer: Linear, room: dict[str, Tensor], expert: int, count: int) -> None:
    """Put the layer's tensors into their places in ``[count, ...]``, which the first one makes."""
    assert isinstance(layer, TritonLinear | Dense)
    layer.__dict__.pop("_held", None)
    for name, tensor in _tensors(layer):
        if tensor.is_meta:
            continue
        if name not in room:
            room[name] = tensor.new_empty((count, *tensor.shape))
        setattr(layer, name, room[name][expert].copy_(tensor))


def _move_out(layer: Linear) -> None:
    """Tensors of its own for a layer, so that those of all can go."""
    if isinstance(layer, TritonLinear | Dense):
        layer.__dict__.pop("_held", None)
        for name, tensor in _tensors(layer):
            setattr(layer, name, tensor.clone())


def _decline(layer: Linear, reason: str) -> None:
    layer.declined = [Declined(PATH, reason), *layer.declined]

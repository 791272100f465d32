"""A product of a few rows with what lies before and after it in a layer, as one kernel where it has proved itself."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from engine.compute.batch import power_of_two
from engine.compute.layers.linear.base import Surroundings
from engine.compute.layers.linear.triton.runtime import Tile, aligned
from engine.compute.layers.residual import add_scaled
from engine.compute.layers.triton import fused
from engine.compute.native.proof import failure

if TYPE_CHECKING:
    from engine.compute.layers.linear.triton.layer import TritonLinear

ROWS = 8
"""The most rows of a product in which gates are taken."""
TOLERANCE = 0.01
"""Share of the largest value by which the last of 16 bits may differ."""
GATINGS = ("silu", "gelu", "gelu_tanh")

_tried: dict[Hashable, str | None] = {}


def declines(layer: TritonLinear, x: Tensor, around: Surroundings) -> str | None:
    """Reason the parts are kernels of their own; None where ``layer`` computes all of it by one, as a trial has shown
    that compared it with those on this device."""
    rows = x.shape[0]
    if layer.numerics.batch_invariant:
        return "its last bits depend on how many rows there are"
    if not 0 < rows <= ROWS or not isinstance(layer.cut(rows), Tile):
        return f"it has no such product of {rows} rows"
    if rows > 1 and (around.stream is not None or around.norm is not None):
        return "with more than one row a norm would cost more within the product than beside it"
    if around.norm is not None:
        if layer.order is not None:
            return "the layer's input features are in another order"
        if layer.in_features > fused.WIDEST or around.norm.dim() != 1 or around.norm.data_ptr() % 16:
            return f"it normalises no rows of {layer.in_features} channels"
    if around.gating and (around.gating not in GATINGS or layer.out_features % 2):
        return f"it has no gating of the kind {around.gating}"
    if around.stream is not None and (not around.stream.is_contiguous() or around.stream.data_ptr() % 16):
        return "the residual stream is no whole tensor"
    return disagrees(layer, x.dtype, around)


def multiply(layer: TritonLinear, x: Tensor, around: Surroundings) -> Tensor:
    """``x [T, K]`` through ``layer`` and what surrounds it, where :func:`declines` gives None: the stream, to which it
    has been added, else a new tensor ``[T, N]``, ``[T, N / 2]`` of gates."""
    from engine.compute.layers.linear.triton.kernels import planes

    rows = x.shape[0]
    cut = layer.cut(rows)
    assert isinstance(cut, Tile)
    out = around.stream
    if out is None:
        out = x.new_empty(rows, layer.out_features // (2 if around.gating else 1))
    norm, scaled = around.norm, around.by != 1

    def constants() -> dict[str, Any]:
        size = 1 if norm is None else layer.in_features
        before = {"NORM": norm is not None, "SIZE": size, "LANES": power_of_two(size)}
        after = {"KIND": around.gating, "ADDED": around.stream is not None, "SCALED": scaled}
        return {**before, **after, "SLICES": cut.slices, "num_warps": cut.slices, "num_stages": layer.stages(cut)}

    more = norm, float(around.eps), float(around.by)
    key = None if norm is None else norm.dtype, around.gating, around.stream is not None, scaled
    x = aligned(layer.ordered(x))
    layer.launch_product(planes.multiply_fused, x, out, cut, constants, more=more, key=key, early=True)
    return out


def disagrees(layer: TritonLinear, dtype: torch.dtype, around: Surroundings) -> str | None:
    """Reason not to trust the kernel with layers like this one; None where it computes what the parts do here."""
    norm = None if around.norm is None else around.norm.dtype
    key = layer.traits, layer.bias is None, dtype, norm, around.gating, around.stream is not None, around.by != 1
    if key not in _tried:
        _tried[key] = failure(lambda: compare(layer, dtype, around))
    return _tried[key]


def compare(layer: TritonLinear, dtype: torch.dtype, around: Surroundings) -> str | None:
    """Reason products of random rows, by the layer's own weights, are wrong; None where they agree with the same by one
    kernel for each part."""
    rows = 1 if around.norm is not None or around.stream is not None else ROWS - 3
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, layer.in_features, generator=generator).to(layer.device, dtype)
    stream = None
    if around.stream is not None:
        stream = torch.randn(rows, layer.out_features, generator=generator).to(layer.device, dtype)
    around = around._replace(stream=stream)
    expected = apart(layer, x, around._replace(stream=None if stream is None else stream.clone()))
    found = multiply(layer, x, around)
    if not expected.any():
        return "the weights that it could be tried with are zero"
    # NaN counts as far.
    near = (found.float() - expected.float()).abs().max() <= TOLERANCE * expected.float().abs().max()
    return None if bool(near) else "what it computes at once does not agree with its parts here"


def apart(layer: TritonLinear, x: Tensor, around: Surroundings) -> Tensor:
    """Same as :func:`multiply`, by one kernel for each part."""
    if around.norm is not None:
        x = fused.add_norm(x.clone(), torch.zeros_like(x), 1.0, around.norm, around.eps)
    cut = layer.cut(x.shape[0])
    assert cut is not None
    out = layer.product(x, x.dtype, cut)
    if around.gating:
        out = fused.gate(out, cast(fused.Gating, around.gating))
    if around.stream is None:
        return out
    add_scaled(around.stream, out, around.by)
    return around.stream

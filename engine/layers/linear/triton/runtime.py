"""Where Triton's kernels run, how they are cut up, and the proof, before a layer is given to one, that it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from engine.layers.linear.base import PackedLinear, Target
from engine.layers.numerics import Numerics
from engine.native.proof import failure

PATH = "Triton kernel"

_WRONG = "do not agree with the definition here"
_UNSTEADY = "depends on the other rows"


class Tile(NamedTuple):
    """What one program computes: ``rows`` x ``outputs``, in ``slices`` of the input features, one warp each."""

    rows: int
    outputs: int
    slices: int
    stages: int = 2


FIXED = Tile(16, 32, 2)
"""The tile that serves any number of rows: in the batch-invariant mode there is no other."""
MANY_ROWS = 64
"""Above this many rows the weights are dequantised and torch multiplies. An estimate from bytes, to be measured on a
GPU: each tile of 16 rows reads the packed weights again, and dequantising costs as much as about nine such reads."""


def tile(rows: int) -> Tile:
    """The tile for a product of ``rows`` rows. Estimates from machine code (docs/measurements.md), not yet measured."""
    if rows <= 2:
        return Tile(8, 16, 4)
    return Tile(8, 32, 4) if rows <= 8 else FIXED


def inlines(device: torch.device) -> bool:
    """Whether kernels may hold PTX: not on AMD, and not in Triton's interpreter, which computes on the CPU.

    Device "meta" stands for an NVIDIA GPU that is not here, when kernels are only compiled.
    """
    return device.type in ("cuda", "meta") and torch.version.hip is None


def aligned(x: Tensor) -> Tensor:
    """``x`` contiguous and at an address that 16 divides: at another, Triton compiles another kernel."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def disagrees(
    layer: Callable[[Target], PackedLinear], weight: Callable[[], Tensor], dtype: torch.dtype, device: torch.device
) -> str | None:
    """Compute small products on the device and compare them with the definition: a wrong kernel must not be used.

    ``weight()`` is ``W [N, K]`` of the layer by the definition. Raises only torch.OutOfMemoryError, see
    :func:`failure`.
    """
    return failure(lambda: _compare(layer, weight, dtype, device))


def computed_wrongly(reason: str) -> bool:
    """Whether a trial's reason is that a kernel ran and its numbers were wrong, not that it could not be run."""
    return reason.endswith((_WRONG, _UNSTEADY))


def _compare(
    layer: Callable[[Target], PackedLinear], definition: Callable[[], Tensor], dtype: torch.dtype, device: torch.device
) -> str | None:
    usual, fixed = (layer(Target(dtype, device, Numerics(invariant))) for invariant in (False, True))
    weight = definition().double()
    if _far(usual.dequantised(torch.float32), weight, 1e-6):
        return f"its weights {_WRONG}"
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(MANY_ROWS + 5, weight.shape[1], generator=generator).to(dtype)
    expected = x.double() @ weight.t()
    for rows in (1, 3, 16, len(x)):
        if _far(usual.forward(x[:rows].to(device)), expected[:rows], 0.02):
            return f"its values for {rows} rows {_WRONG}"
    whole = fixed.forward_float32(x.to(device))
    if _far(whole, expected, 0.02):
        return f"its float32 values {_WRONG}"
    for start, stop in ((0, 1), (3, 21)):
        if not torch.equal(fixed.forward_float32(x[start:stop].to(device)), whole[start:stop]):
            return f"its result for a row {_UNSTEADY}"
    return None


def _far(found: Tensor, expected: Tensor, share: float) -> bool:
    """NaN counts as far."""
    return not bool((found.double().cpu() - expected).abs().max() <= share * expected.abs().max())

"""The proof, before a layer is given to a kernel, that it computes this layer's products on this device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.compute.layers.linear.base import Target
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.numerics import Numerics
from engine.compute.native.proof import tried

_WRONG = "do not agree with the definition here"
_UNSTEADY = "depends on the other rows"


def disagrees(
    what: tuple[object, ...],
    layer: Callable[[Target], TritonLinear],
    weight: Callable[[], Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> str | None:
    """Compute small products on the device and compare them with the definition: a wrong kernel must not be used.

    ``what`` has all that decides about the kernels besides ``dtype``; ``weight()`` is ``W [N, K]`` of the layer by the
    definition. Raises only torch.OutOfMemoryError, see :func:`engine.compute.native.proof.failure`.
    """
    return tried((*what, dtype), device, lambda: _compare(layer, weight, dtype, device))


def computed_wrongly(reason: str) -> bool:
    """Return True if a trial's reason is that a kernel ran and its numbers were wrong, not that it could not be run."""
    return reason.endswith((_WRONG, _UNSTEADY))


def _compare(
    layer: Callable[[Target], TritonLinear], definition: Callable[[], Tensor], dtype: torch.dtype, device: torch.device
) -> str | None:
    usual, fixed = (layer(Target(dtype, device, Numerics(invariant))) for invariant in (False, True))
    weight = definition().double()
    if _far(usual.dequantised(torch.float32), weight, 1e-6):
        return f"its weights {_WRONG}"
    generator = torch.Generator().manual_seed(2)
    cuts, some = usual.cuts(), 24
    x = torch.randn(max(some, *(cut.rows + 3 for cut in cuts)), weight.shape[1], generator=generator).to(dtype)
    expected = x.double() @ weight.t()
    for cut in cuts:
        rows = cut.rows + 3
        if _far(usual.product(x[:rows].to(device), dtype, cut), expected[:rows], 0.02):
            return f"its values for {rows} rows {_WRONG}"
    if _far(usual.by_blocks(x.to(device)), expected, 0.02):
        return f"its values for many rows {_WRONG}"
    whole = fixed.forward_float32(x[:some].to(device))
    if _far(whole, expected[:some], 0.02):
        return f"its float32 values {_WRONG}"
    for start, stop in ((0, 1), (3, 21)):
        if not torch.equal(fixed.forward_float32(x[start:stop].to(device)), whole[start:stop]):
            return f"its result for a row {_UNSTEADY}"
    return None


def _far(found: Tensor, expected: Tensor, share: float) -> bool:
    """NaN counts as far."""
    return not bool((found.double().cpu() - expected).abs().max() <= share * expected.abs().max())

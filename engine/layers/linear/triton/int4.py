"""Group-affine 4-bit weights on a GPU, by Kvasir's own Triton kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.layers.linear.affine import AffineColumns, AffineWeights, chunks, dequantise, pack_codes, unpack_words
from engine.layers.linear.triton.plane_layer import Form, PlaneLinear, plane_of
from engine.layers.linear.triton.runtime import Trial, disagrees, machine_declines
from engine.layers.numerics import Numerics

_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


class TritonInt4Linear(PlaneLinear):
    """``scales`` as in the file, ``offsets`` the zero-points (uint8), dropped where all are 8."""

    kind = "int4"

    def __init__(
        self,
        parts: Sequence[AffineWeights],
        bias: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
        numerics: Numerics,
    ) -> None:
        """Parts fused along their output features; they agree in input features, group and order."""
        first = parts[0]
        plane = plane_of(first.in_features, first.group)
        assert plane is not None, "see triton_declines"
        scales, symmetric = survey(parts)
        form = Form(plane, _NAMES[scales], "eight" if symmetric else "zeros")
        outputs = sum(part.out_features for part in parts)
        zeros = None if symmetric else torch.uint8
        super().__init__(form, first.in_features, outputs, dtype, device, numerics, scales, zeros)
        self.bias = bias
        self.order = None if first.order is None else first.order.to(device, torch.int32)
        for start, columns in chunks(parts):
            self.put_codes(unpack_words(columns.words.to(device), self.order).t(), start)
            self.put_groups(columns.scales.t(), self.scales, start)
            if self.offsets is not None:
                self.put_groups(columns.zeros.t(), self.offsets, start)


def survey(parts: Sequence[AffineWeights]) -> tuple[torch.dtype, bool]:
    """The one dtype of all scales (float32 where they differ), and whether every zero-point is 8."""
    found, symmetric = set(), True
    for _, columns in chunks(parts):
        found.add(columns.scales.dtype)
        symmetric = symmetric and bool((columns.zeros == 8).all())
    return (found.pop() if len(found) == 1 else torch.float32), symmetric


def triton_declines(parts: Sequence[AffineWeights], dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the kernels do not serve a layer; None when they do, which they have then proved on this device."""
    reason = machine_declines(dtype, device)
    if reason is not None:
        return reason
    first = parts[0]
    if plane_of(first.in_features, first.group) is None or first.in_features % first.group:
        return f"it has no groups of {first.group} over {first.in_features} input features"
    scales, symmetric = survey(parts)
    padded = first.in_features % (4 * (plane_of(first.in_features, first.group) or 1)) != 0
    return _disagrees(plane_of(first.in_features, first.group) or 0, padded, scales, symmetric, dtype, device)


def try_kernels(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the commonest 4-bit layer, of groups of 128, would not be served on a device; None where it would."""
    return machine_declines(dtype, device) or _disagrees(128, False, torch.float16, True, dtype, device)


@functools.cache
def _disagrees(
    plane: int, padded: bool, scales: torch.dtype, symmetric: bool, dtype: torch.dtype, device: torch.device
) -> str | None:
    part = Sample(72, plane * (20 + padded), plane, scales, symmetric)

    def trial() -> Trial:
        layers = {
            invariant: TritonInt4Linear([part], None, dtype, device, Numerics(invariant)) for invariant in (False, True)
        }

        def multiply(x: Tensor, fixed: bool) -> Tensor:
            return layers[True].forward_float32(x) if fixed else layers[False].forward(x)

        return Trial(multiply, layers[False].dequantised(torch.float32), part.weight())

    return disagrees(trial, dtype, device)


class Sample:
    """Random group-affine weights, to try a kernel with."""

    order: Tensor | None = None

    def __init__(self, outputs: int, inputs: int, group: int, scales: torch.dtype, symmetric: bool) -> None:
        generator = torch.Generator().manual_seed(1)
        self.in_features, self.out_features, self.group = inputs, outputs, group
        codes = torch.randint(0, 16, (inputs, outputs), dtype=torch.uint8, generator=generator)
        shape = (inputs // group, outputs)
        zeros = torch.full(shape, 8) if symmetric else torch.randint(0, 16, shape, generator=generator)
        spread = torch.rand(shape, generator=generator) * 0.02 + 0.005
        self._columns = AffineColumns(pack_codes(codes), spread.to(scales), zeros.to(torch.uint8))

    def columns(self, start: int, stop: int) -> AffineColumns:
        return AffineColumns(*(values[:, start:stop] for values in self._columns))

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition."""
        return dequantise(self._columns, self.group, None).t()

"""8-bit weights on a GPU, by Kvasir's own Triton kernels: LLM.int8, 8-bit groups, and ggml's Q8_0."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from engine.layers.linear.triton import inline
from engine.layers.linear.triton.layer import TritonLinear
from engine.layers.linear.triton.runtime import Tile, Trial, aligned, disagrees, inlines, machine_declines
from engine.layers.numerics import Numerics

PLANES = (128, 64, 32, 16)
TURN = 128
"""Input features that a slice takes in one turn of the loop."""
DEQUANTISED = 32


class TritonInt8Linear(TritonLinear):
    """``W[n, k] = (codes[n, k] - zeros[g, n]) * scales[g, n] * factor``, g the group of input feature k."""

    kind = "int8"
    held = ("codes", "scales", "zeros")

    def __init__(
        self,
        codes: Tensor,
        scales: Tensor,
        zeros: Tensor | None,
        bias: Tensor | None,
        dtype: torch.dtype,
        numerics: Numerics,
        factor: float = 1.0,
    ) -> None:
        """``codes [N, K]`` int8, kept and not copied; ``scales``, and ``zeros`` int8, ``[N, groups]``."""
        outputs, inputs = codes.shape
        super().__init__(inputs, outputs, dtype, codes.device, numerics)
        self.group, self.factor, self.bias = inputs // scales.shape[1], factor, bias
        self.codes, self.scales = aligned(codes), scales.t().contiguous()
        self.zeros = None if zeros is None else zeros.t().contiguous()
        plane = plane_of(inputs, self.group)
        assert plane is not None, "see triton_declines"
        self.plane = plane

    def launch_multiply(self, x: Tensor, out: Tensor, cut: Tile) -> None:
        from engine.layers.linear.triton import bytes8

        grid = (-(-self.out_features // cut.outputs), -(-len(x) // cut.rows))
        bytes8.multiply[grid](
            x,
            self.codes,
            self.scales,
            self.zeros,
            self.bias,
            out,
            len(x),
            self.out_features,
            self.in_features,
            self.factor,
            PLANE=self.plane,
            TURN=TURN // self.plane,
            GROUP=self.group,
            ZEROS=self.zeros is not None,
            BIAS=self.bias is not None,
            MB=cut.rows,
            BN=cut.outputs,
            SLICES=cut.slices,
            ASM=inline.signed_bytes(x.dtype) if inlines(self.device) else "",
            num_warps=cut.slices,
            num_stages=cut.stages,
        )

    def launch_dequantise(self, start: int, stop: int, out: Tensor) -> None:
        from engine.layers.linear.triton import bytes8

        grid = (-(-(stop - start) // DEQUANTISED), self.in_features // self.plane)
        bytes8.dequantise[grid](
            self.codes,
            self.scales,
            self.zeros,
            out,
            start,
            stop,
            self.out_features,
            self.in_features,
            self.factor,
            PLANE=self.plane,
            GROUP=self.group,
            ZEROS=self.zeros is not None,
            BN=DEQUANTISED,
            num_warps=4,
        )


def plane_of(in_features: int, group: int) -> int | None:
    return next((plane for plane in PLANES if group % plane == 0 and in_features % plane == 0), None)


def triton_declines(
    in_features: int, group: int, ordered: bool, scales: torch.dtype, zeros: bool, dtype: torch.dtype,
    device: torch.device,
) -> str | None:  # fmt: skip
    """Why the kernels do not serve a layer; None when they do, which they have then proved on this device."""
    reason = machine_declines(dtype, device)
    if reason is not None:
        return reason
    if ordered:
        return "its groups are not runs of input features"
    plane = plane_of(in_features, group)
    if plane is None or in_features % group:
        return f"it has no groups of {group} over {in_features} input features"
    return _disagrees(plane, scales, zeros, dtype, device)


@functools.cache
def _disagrees(plane: int, scales: torch.dtype, zeros: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    sample = Sample(72, max(plane, TURN) * 3, plane, scales, zeros)

    def trial() -> Trial:
        made = {invariant: sample.layer(dtype, device, Numerics(invariant)) for invariant in (False, True)}

        def multiply(x: Tensor, fixed: bool) -> Tensor:
            return made[True].forward_float32(x) if fixed else made[False].forward(x)

        return Trial(multiply, made[False].dequantised(torch.float32), sample.weight())

    return disagrees(trial, dtype, device)


class Sample:
    """Random weights of this kind, to try a kernel with."""

    def __init__(
        self,
        outputs: int,
        inputs: int,
        group: int,
        scales: torch.dtype,
        zeros: bool,
        factor: float = 1.0,
        seed: int = 1,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (outputs, inputs // group)
        self.group, self.factor = group, factor
        self.codes = torch.randint(-128, 128, (outputs, inputs), generator=generator).to(torch.int8)
        self.scales = (torch.rand(shape, generator=generator) * 0.02 + 0.005).to(scales)
        self.zeros = torch.randint(-128, 128, shape, generator=generator).to(torch.int8) if zeros else None

    def layer(
        self, dtype: torch.dtype, device: torch.device, numerics: Numerics, bias: Tensor | None = None
    ) -> TritonInt8Linear:
        zeros = None if self.zeros is None else self.zeros.to(device)
        return TritonInt8Linear(
            self.codes.to(device), self.scales.to(device), zeros, bias, dtype, numerics, self.factor
        )

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition."""
        zeros = 0.0 if self.zeros is None else self.zeros.float().repeat_interleave(self.group, 1)
        scales = self.scales.float().repeat_interleave(self.group, 1)
        return (self.codes.float() - zeros) * scales * self.factor

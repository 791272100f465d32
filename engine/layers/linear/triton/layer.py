"""What the layers over Triton kernels share: a product for few rows, dequantise and multiply for many."""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.layers.linear.blocks import scratch
from engine.layers.linear.blockwise import BlockwiseLinear
from engine.layers.linear.triton.runtime import FIXED, MANY_ROWS, PATH, Tile, aligned, tile
from engine.native.triton_launch import Variants


class TritonLinear(BlockwiseLinear):
    """A packed layer on a GPU. A kind says with what its two kernels, ``multiply`` and ``dequantise``, are launched."""

    path = PATH
    block_weights = 1 << 24
    """32 MB in 16 bits: within what memory/estimate.py counts for scratch."""
    granule = 128
    """Products like multiples of it."""
    program_outputs: ClassVar[int] = 32
    """Output features that one program dequantises."""
    program_inputs: int
    """Input features that one program dequantises."""

    @abstractmethod
    def kernels(self) -> Any:
        """The module of both kernels. Importing it needs Triton."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor | None, ...]:
        """What both read, in the order of their parameters; asked for once, when the layer is filled."""

    @abstractmethod
    def sizes(self) -> tuple[int | float, ...]:
        """The parameters of both after ``outputs``."""

    @abstractmethod
    def constants(self) -> dict[str, Any]:
        """What both are compiled for."""

    @abstractmethod
    def product_constants(self, dtype: torch.dtype) -> dict[str, Any]:
        """What ``multiply`` alone is compiled for; ``dtype`` is that of x."""

    def stages(self, cut: Tile) -> int:
        """How deep ``multiply`` is pipelined."""
        return cut.stages

    def launch_multiply(self, x: Tensor, out: Tensor, cut: Tile) -> None:
        """``out [rows, N]`` in any floating dtype from ``x [rows, K]``, contiguous, in the packed order; with bias."""
        grid = (-(-self.out_features // cut.outputs), -(-len(x) // cut.rows), 1)
        args = (x, *self._held, self.bias, out, len(x), self.out_features, *self.sizes())

        def keywords() -> dict[str, Any]:
            return {
                **self.constants(),
                **self.product_constants(x.dtype),
                "BIAS": self.bias is not None,
                "MB": cut.rows,
                "BN": cut.outputs,
                "SLICES": cut.slices,
                "num_warps": cut.slices,
                "num_stages": self.stages(cut),
            }

        self._variants.launch(self.kernels().multiply, (cut, x.dtype, out.dtype), grid, args, keywords)

    def launch_dequantise(self, start: int, stop: int, out: Tensor) -> None:
        """``W [stop - start, K]`` of some output features in the packed order; float32 results are exact."""
        grid = (-(-(stop - start) // self.program_outputs), -(-self.in_features // self.program_inputs), 1)
        args = (*self._held, out, start, stop, self.out_features, *self.sizes())

        def keywords() -> dict[str, Any]:
            # The definitions round the product before they add.
            return {**self.constants(), "BN": self.program_outputs, "num_warps": 4, "enable_fp_fusion": False}

        self._variants.launch(self.kernels().dequantise, out.dtype, grid, args, keywords)

    @functools.cached_property
    def _held(self) -> tuple[Tensor | None, ...]:
        return self.tensors()

    @functools.cached_property
    def _variants(self) -> Variants:
        return Variants()

    def forward(self, x: Tensor) -> Tensor:
        if self.numerics.batch_invariant:
            return self._product(x, x.dtype, FIXED)
        return self._product(x, x.dtype, tile(x.shape[0])) if x.shape[0] <= MANY_ROWS else self.by_blocks(x)

    def forward_float32(self, x: Tensor) -> Tensor:
        return self._product(x, torch.float32, FIXED) if x.dtype == self.dtype else super().forward_float32(x)

    def _product(self, x: Tensor, dtype: torch.dtype, cut: Tile) -> Tensor:
        out = torch.empty(x.shape[0], self.out_features, dtype=dtype, device=x.device)
        if x.shape[0]:
            self.launch_multiply(aligned(self.ordered(x)), out, cut)
        return out

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        block = scratch.take("triton", (stop - start, self.in_features), dtype, self.device)
        self.launch_dequantise(start, stop, block)
        return block

"""Base of the layers over Triton kernels: a product for few rows, dequantise and multiply for many."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.compute.layers.linear.blocks import scratch
from engine.compute.layers.linear.blockwise import BlockwiseLinear
from engine.compute.layers.linear.triton.runtime import FIXED, MANY_ROWS, PATH, Cut, Tile, aligned, tile
from engine.compute.native.triton_launch import Variants


class TritonLinear(BlockwiseLinear):
    """A packed layer on a GPU. A kind says with what its two kernels, ``multiply`` and ``dequantise``, are launched."""

    path = PATH
    block_weights = 1 << 25
    """Weights dequantised at a time. In 16 bits: 64 MB, which memory/estimate.py counts as scratch: larger blocks take
    fewer launches, and their products fill more multiprocessors."""
    granule = 128
    """Torch's products are made of tiles of about as many output features."""
    program_outputs: ClassVar[int] = 32
    """Output features that one program dequantises."""
    starts_early: ClassVar[bool] = False
    """Its ``multiply`` may be launched early (`engine.compute.native.triton_launch.early`)."""
    program_inputs: int
    """Input features that one program dequantises."""

    @abstractmethod
    def kernels(self) -> Any:
        """The module of both kernels. Importing it needs Triton."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Tensors that both kernels read, in the order of their parameters; called once, when the layer is filled."""

    @abstractmethod
    def sizes(self) -> tuple[int | float, ...]:
        """The parameters of both after ``outputs``."""

    @abstractmethod
    def constants(self) -> dict[str, Any]:
        """Constants that both kernels are compiled for."""

    @abstractmethod
    def product_constants(self, dtype: torch.dtype) -> dict[str, Any]:
        """Constants that ``multiply`` alone is compiled for; ``dtype`` is that of x."""

    def cut(self, rows: int) -> Cut | None:
        """Tile of a product of ``rows`` rows; None: the weights are dequantised and torch multiplies."""
        return tile(rows) if rows <= MANY_ROWS else None

    def cuts(self) -> tuple[Cut, ...]:
        """All that :meth:`cut` gives, for a trial."""
        return (tile(1), FIXED)

    @property
    def fixed(self) -> Cut:
        """The cut that serves any number of rows, each of which has the same bits whatever the others are."""
        return FIXED

    def stages(self, cut: Tile) -> int:
        """Number of pipeline stages of ``multiply``."""
        return cut.stages

    def launch_multiply(self, x: Tensor, out: Tensor, cut: Cut) -> None:
        """``out [rows, N]`` in any floating dtype from ``x [rows, K]``, contiguous, in the packed order; with bias."""
        assert isinstance(cut, Tile)
        constants = {"SLICES": cut.slices, "num_warps": cut.slices, "num_stages": self.stages(cut)}
        self.launch_product(self.kernels().multiply, x, out, cut, lambda: constants, early=self.starts_early)

    def launch_product(
        self,
        kernel: Any,
        x: Tensor,
        out: Tensor,
        cut: Cut,
        constants: Callable[[], dict[str, Any]],
        splits: int = 1,
        more: tuple[Any, ...] = (),
        key: Hashable = None,
        early: bool = False,
    ) -> None:
        """``constants()`` are those of one kernel and one cut, besides its ``rows`` and ``outputs``. With ``splits``
        ``out`` has as many parts, one after the other. ``more`` are parameters after the sizes, and ``key`` says which
        variant they ask for. ``early``: the kernel may be launched early."""
        grid = (-(-self.out_features // cut.outputs), -(-len(x) // cut.rows), splits)
        args = (x, *self._held, self.bias, out, len(x), self.out_features, *self.sizes(), *more)

        def keywords() -> dict[str, Any]:
            return {
                **self.constants(),
                **self.product_constants(x.dtype),
                "BIAS": self.bias is not None,
                "MB": cut.rows,
                "BN": cut.outputs,
                **constants(),
            }

        weights = self._held[0] if early else None
        self._variants.launch(kernel, (cut, x.dtype, out.dtype, key), grid, args, keywords, early, weights)

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
    def traits(self) -> Hashable:
        """Traits by which a trial of one such layer stands for others: equal for those with the same compiled code."""
        constants = *self.constants().items(), *self.product_constants(self.dtype).items()
        dtypes = tuple(None if each is None else each.dtype for each in self._held)
        return type(self), self.in_features, self.out_features, self.sizes(), constants, dtypes, self.device

    @functools.cached_property
    def _variants(self) -> Variants:
        return Variants()

    def forward(self, x: Tensor) -> Tensor:
        cut = self.fixed if self.numerics.batch_invariant else self.cut(x.shape[0])
        return self.by_blocks(x) if cut is None else self.product(x, x.dtype, cut)

    def forward_float32(self, x: Tensor) -> Tensor:
        return self.product(x, torch.float32, self.fixed) if x.dtype == self.dtype else super().forward_float32(x)

    def by_blocks(self, x: Tensor) -> Tensor:
        x = self.ordered(x)
        out = x.new_empty(x.shape[0], self.out_features)
        for start, block in self.weight_blocks(x.dtype):
            torch.mm(x, block, out=out[:, start : start + block.shape[1]])
        return out if self.bias is None else out.add_(self.bias)

    def weight_blocks(self, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
        # As many blocks as there must be, all about as large.
        weights = self.block_weights * 2 // dtype.itemsize
        most = max(1, weights // (self.in_features * self.granule))
        granules = -(-self.out_features // self.granule)
        step = -(-granules // -(-granules // most)) * self.granule
        for start in range(0, self.out_features, step):
            yield start, self.rows(start, min(start + step, self.out_features), dtype).t()

    def product(self, x: Tensor, dtype: torch.dtype, cut: Cut) -> Tensor:
        """``x W^T + bias`` in ``dtype``, cut up in this way."""
        out = torch.empty(x.shape[0], self.out_features, dtype=dtype, device=x.device)
        if x.shape[0]:
            self.launch_multiply(aligned(self.ordered(x)), out, cut)
        return out

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        block = scratch.take("triton", (stop - start, self.in_features), dtype, self.device)
        self.launch_dequantise(start, stop, block)
        return block


class PlaneLayer(TritonLinear):
    """A layer whose words lie in planes, as far as kernels beside planes.py know it: a `PlaneLinear`."""

    form: Any
    blocks: int
    words: Tensor
    launch_resident: Callable[..., None]

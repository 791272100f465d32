"""4-bit layers in planes (see planes.py): what they hold, and how codes are packed into it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, Surroundings, Target
from engine.compute.layers.linear.triton import resident, surrounded
from engine.compute.layers.linear.triton.kernels import inline
from engine.compute.layers.linear.triton.layer import PlaneLayer
from engine.compute.layers.linear.triton.runtime import (
    DEEP,
    FEW_ROWS,
    FMA,
    FMA_FIXED,
    MANY_ROWS,
    SPLITS,
    Cut,
    FmaTile,
    RingCut,
    StripCut,
    WideTile,
    most_plane_rows,
    plane_tile,
    split,
    tensor_cores,
    wide_tile,
    wide_tiles,
)
from engine.compute.native.gpu import capability, inlines, processors

PLANES = (128, 64, 32, 16)
TURN = 32
"""The most halfwords of an output feature that gemm.py takes in one turn of its loop."""
ADDED = 1024
"""Results of split products that a program adds up."""


class Form(NamedTuple):
    """Constants that a kernel is compiled for, named as in planes.py. ``table`` is empty where codes are numbers."""

    plane: int
    scale: str
    offset: str
    table: tuple[float, ...] = ()
    outer: int = 1
    block: int = 1


def plane_of(in_features: int, group: int) -> int | None:
    """Input features to a plane: no group is cut, and of such that with the fewest bytes; None where there is none."""
    fitting = [plane for plane in PLANES if group % plane == 0]

    def size(plane: int) -> float:
        return -(-in_features // (4 * plane)) * (plane + 4)

    return min(fitting, key=size, default=None)


class PlaneLinear(PlaneLayer):
    """``words [N, blocks * plane]`` int16; ``scales`` and ``offsets`` ``[blocks, N, 4]``; the rest as the form asks."""

    held = ("words", "scales", "offsets", "outer", "codebook", "table", "order")
    program_outputs = 16
    starts_early = True
    outer: Tensor | None = None
    codebook: Tensor | None = None
    shift = 0.0

    def __init__(
        self,
        form: Form,
        shape: LinearShape,
        target: Target,
        device: torch.device,
        scales: torch.dtype,
        offsets: torch.dtype | None,
    ) -> None:
        """``scales`` and ``offsets`` are the dtypes that are held; until the layer is filled they are zero."""
        super().__init__(shape, target, device)
        self.form, self.order, self.program_inputs = form, shape.new_order(device), 4 * form.plane
        self.blocks = -(-shape.in_features // self.program_inputs)
        self.words = torch.zeros(shape.out_features, self.blocks * form.plane, dtype=torch.int16, device=device)
        fours = (self.blocks, shape.out_features, 4)
        self.scales = torch.zeros(fours, dtype=scales, device=device)
        self.offsets = None if offsets is None else torch.zeros(fours, dtype=offsets, device=device)
        self.table = torch.tensor(form.table, device=device) if form.table else None

    def put_codes(self, codes: Tensor, start: int) -> None:
        """``codes [n, K]`` uint8, in the packed order, of the output features from ``start``."""
        rows = torch.nn.functional.pad(codes, (0, self.program_inputs * self.blocks - self.in_features))
        quads = rows.view(len(codes), self.blocks, 4, self.form.plane).to(self.device, torch.int32)
        words = quads[:, :, 0] | quads[:, :, 1] << 4 | quads[:, :, 2] << 8 | quads[:, :, 3] << 12
        # To int16 with its sign: a conversion that does not fit is not defined.
        words = (words ^ 0x8000) - 0x8000
        self.words[start : start + len(codes)] = words.view(len(codes), -1).to(torch.int16)

    def put_groups(self, values: Tensor, held: Tensor, start: int) -> None:
        """``values [n, groups]`` into ``scales`` or ``offsets`` for the output features from ``start``."""
        count, groups = values.shape
        each = values.to(self.device).repeat_interleave(self.in_features // groups // self.form.plane, 1)
        padded = torch.nn.functional.pad(each, (0, 4 * self.blocks - each.shape[1]))
        held[:, start : start + count] = padded.view(count, self.blocks, 4).transpose(0, 1)

    def kernels(self) -> Any:
        from engine.compute.layers.linear.triton.kernels import planes

        return planes

    def tensors(self) -> tuple[Tensor | None, ...]:
        bits = 8 * self.scales.element_size()
        scales = self.scales.view(torch.int32 if bits == 8 else torch.int64)
        offsets = self.offsets
        if offsets is not None:
            offsets = offsets.view(torch.int32 if offsets.element_size() == 1 else torch.int64)
        return self.words, scales, offsets, self.outer, self.codebook, self.table

    def sizes(self) -> tuple[int | float, ...]:
        return self.in_features, self.blocks, self.shift

    def constants(self) -> dict[str, Any]:
        form = self.form
        return {
            "PLANE": form.plane,
            "SCALE": form.scale,
            "OFFSET": form.offset,
            "LOOKUP": bool(form.table),
            "OUTER": form.outer,
            "BLOCK": form.block,
        }

    def product_constants(self, dtype: torch.dtype) -> dict[str, Any]:
        asm, magic = "", 0.0
        if inlines(self.device):
            table = self.form.table
            asm, magic = (inline.lookup(table, dtype), 0.0) if table else inline.nibbles(dtype)
        return {"PADDED": self.in_features != self.program_inputs * self.blocks, "ASM": asm, "MAGIC": magic}

    def cut(self, rows: int) -> Cut | None:
        if not tensor_cores(self.device):
            return next((cut for cut in FMA if rows <= cut.rows), None)
        programs = processors(self.device)
        if rows <= FEW_ROWS:
            return plane_tile(rows, self.out_features, 2 * self.form.plane, self.blocks, programs)
        version = capability(self.device)
        if rows > most_plane_rows(version):
            return None
        wide = wide_tile(rows, self.out_features, wide_tiles(version), programs)
        return split(wide, rows, self.out_features, programs)

    def cuts(self) -> tuple[Cut, ...]:
        if not tensor_cores(self.device):
            return FMA
        wide = wide_tiles(capability(self.device))
        return *super().cuts(), DEEP, *wide, *(cut._replace(splits=SPLITS) for cut in wide if cut.rows <= MANY_ROWS)

    @property
    def fixed(self) -> Cut:
        return super().fixed if tensor_cores(self.device) else FMA_FIXED

    def forward(self, x: Tensor) -> Tensor:
        return resident.multiply(self, x) if resident.declines(self, x) is None else super().forward(x)

    def forward_within(self, x: Tensor, around: Surroundings) -> Tensor | None:
        if self.declines_within(x, around) is not None:
            return None
        by = resident if resident.declines(self, x, around) is None else surrounded
        return by.multiply(self, x, around)

    def declines_within(self, x: Tensor, around: Surroundings) -> str | None:
        return surrounded.declines(self, x, around)

    def launch_multiply(self, x: Tensor, out: Tensor, cut: Cut) -> None:
        if isinstance(cut, WideTile):
            from engine.compute.layers.linear.triton.kernels import gemm

            if cut.splits == 1:
                self.launch_product(gemm.gemm, x, out, cut, lambda: self.wide_constants(cut, x.dtype))
                return
            parts = torch.empty(cut.splits, *out.shape, dtype=torch.float32, device=out.device)
            self.launch_product(gemm.gemm, x, parts, cut, lambda: self.wide_constants(cut, x.dtype), cut.splits)
            grid, constants = (-(-out.numel() // ADDED), 1, 1), {"SPLITS": cut.splits, "SIZE": ADDED, "num_warps": 4}
            key = ("added", cut.splits, out.dtype)
            self._variants.launch(gemm.add_parts, key, grid, (parts, out, out.numel()), lambda: constants)
        elif isinstance(cut, FmaTile):
            from engine.compute.layers.linear.triton.kernels import fma

            constants = {"SLICES": cut.halfwords // self.form.plane, "num_warps": cut.warps}
            self.launch_product(fma.fma, x, out, cut, lambda: constants)
        elif isinstance(cut, StripCut | RingCut):
            resident.launch(self, x, out, cut)
        else:
            super().launch_multiply(x, out, cut)

    def launch_resident(
        self,
        kernel: Any,
        x: Tensor,
        out: Tensor,
        cut: StripCut | RingCut,
        programs: int,
        constants: Callable[[], dict[str, Any]],
        more: tuple[Any, ...],
        key: Hashable,
    ) -> None:
        """Same as :meth:`launch_product`, by so many ``programs``."""
        args = (x, *self._held, self.bias, out, len(x), self.out_features, *self.sizes(), *more)

        def keywords() -> dict[str, Any]:
            product = {**self.constants(), **self.product_constants(x.dtype), "BIAS": self.bias is not None}
            return {**product, **constants()}

        self._variants.launch(kernel, (cut, x.dtype, out.dtype, key), (programs, 1, 1), args, keywords)

    def wide_constants(self, cut: WideTile, dtype: torch.dtype) -> dict[str, Any]:
        """Constants that gemm.py's kernels are compiled for besides; ``dtype`` is that of x."""
        scaled = inline.scaled(self.form.offset, dtype) if inlines(self.device) else ""
        turn = min(TURN, self.form.plane)
        return {"TURN": turn, "SCALED": scaled, "SPLITS": cut.splits, "num_warps": cut.warps, "num_stages": cut.stages}

"""Random layers of every packed kind that has a Triton kernel: for the tests, the machine code and the benchmark."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.compute.layers.linear.base import Nested, Target
from engine.compute.layers.linear.ggml_blocks import BLOCKS, IQ4_NL, MXFP4, Q4_0, Q4_1, Q4_K, Q8_0, dequantise
from engine.compute.layers.linear.triton import ggml, int4, int8, table
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.numerics import Numerics


class Made(NamedTuple):
    """A layer, and its ``W [N, K]`` float32 by the definition."""

    layer: TritonLinear
    weight: Tensor


class Kind(Protocol):
    """Makes layers of one kind; the sizes are whole groups and blocks."""

    def __call__(
        self, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, numerics: Numerics
    ) -> Made: ...


class Affine(NamedTuple):
    group: int
    symmetric: bool
    scales: torch.dtype = torch.float16

    def __call__(self, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, numerics: Numerics) -> Made:
        part = int4.Int4Sample(outputs, inputs, self.group or inputs, self.scales, self.symmetric)
        return Made(part.layer(Target(dtype, device, numerics)), part.weight())


class Table(NamedTuple):
    block: int
    nested: bool

    def __call__(self, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, numerics: Numerics) -> Made:
        part = table.TableSample(outputs, inputs, self.block, Nested(256, 0.03) if self.nested else None)
        return Made(part.layer(Target(dtype, device, numerics)), part.weight())


class Bytes(NamedTuple):
    group: int
    zeros: bool
    scales: torch.dtype
    factor: float = 1.0

    def __call__(self, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, numerics: Numerics) -> Made:
        part = int8.Int8Sample(outputs, inputs, self.group or inputs, self.scales, self.zeros, self.factor)
        return Made(part.layer(Target(dtype, device, numerics)), part.weight())


class Blocks(NamedTuple):
    type: int
    raw: bool = False

    def __call__(self, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, numerics: Numerics) -> Made:
        data = ggml.sample(self.type, outputs, inputs)
        layer = ggml.of_data(self.type, data.to(device), Target(dtype, device, numerics), self.raw)
        return Made(layer, dequantise(self.type, data))


KINDS: dict[str, Kind] = {
    "int4 g128": Affine(128, True),
    "int4 g128 zeros": Affine(128, False),
    "int4 g64": Affine(64, True),
    "int4 g64 zeros": Affine(64, False),
    "int4 g32": Affine(32, True),
    "int4 g32 zeros bf16": Affine(32, False, torch.bfloat16),
    "int4 rows fp32": Affine(0, True, torch.float32),
    "NF4": Table(64, False),
    "NF4 nested": Table(64, True),
    "int8 rows": Bytes(0, False, torch.float32, 1 / 127),
    "int8 g128 zeros": Bytes(128, True, torch.float16),
    "int8 g32": Bytes(32, False, torch.bfloat16),
    **{block.name: Blocks(type) for type, block in BLOCKS.items() if type != Q4_0},
    **{f"{BLOCKS[type].name} raw": Blocks(type, raw=True) for type in (Q4_1, Q8_0, Q4_K, IQ4_NL, MXFP4)},
}
"""Q4_0 is an int4 g32."""


BASE = 256
"""Every matrix of a Llama 8B has a multiple of it as its output features."""


def tall(kind: Kind, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, numerics: Numerics) -> Made:
    """A layer of many output features, whose weights are those of few, again and again, repeated on the device; of the
    definition the first ones. Where the kind cannot be repeated, or there are few, it is made whole."""
    low, high = (kind(count, inputs, dtype, device, numerics) for count in (BASE // 2, BASE))
    times, left = divmod(outputs, BASE)
    if left or times < 2:
        return kind(outputs, inputs, dtype, device, numerics)
    layer = high.layer
    for name in layer.held:
        few, many = getattr(low.layer, name), getattr(layer, name)
        if many is None:
            continue
        # What grows with the output features holds them, and grows along one dimension.
        grown = [times if a != b else 1 for a, b in zip(few.shape, many.shape, strict=True)]
        setattr(layer, name, many.repeat(*grown))
    layer.out_features = outputs
    return high

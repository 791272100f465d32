"""The towers of Qwen3.5 (Qwen Team 2026) and Qwen3-VL (Bai et al. 2025, arXiv 2511.21631).

They are the same but for DeepStack: Qwen3-VL also hands what some of its layers see to the language model's first ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.layers.activation import FUNCTIONS
from engine.layers.interface import WeightSource
from engine.model_config.raw import RawConfig
from engine.vision.layers import (
    MOST_LAYERS,
    Names,
    Part,
    Shape,
    Span,
    angles,
    read_layers,
    read_norm,
    rotation,
)
from engine.vision.merging import QwenTower, in_squares, patch_positions
from engine.vision.settings import same

NAMES = Names(("norm1", "norm2"), ("attn.qkv",), "attn.proj", ("mlp.linear_fc1",), "mlp.linear_fc2")
EPS = 1e-6


class Merger(Part):
    """Makes one token of a square's patches; the norm is of each patch, or of a ``whole`` square."""

    def __init__(self, source: WeightSource, prefix: str, width: int, square: int, out: int, whole: bool) -> None:
        self.width = width * square
        self.norm = read_norm(source, f"{prefix}norm", self.width if whole else width, EPS, False)
        self.whole = whole
        self.up = source.linear(prefix, ("linear_fc1",), [self.width], self.width, True)
        self.down = source.linear(prefix, ("linear_fc2",), [out], self.width, True)

    def forward(self, x: Tensor) -> Tensor:
        """``x [n, width]`` -> ``[n / square, out]``."""
        x = self.norm.forward(x.view(-1, self.width)) if self.whole else self.norm.forward(x).view(-1, self.width)
        return self.down(FUNCTIONS["gelu"](self.up(x)))


class Qwen3Tower(QwenTower):
    """The table of positions is square and is stretched to each picture; rows and columns are rotated as well."""

    def __init__(self, raw: RawConfig, processor: RawConfig, width: int, source: WeightSource) -> None:
        deep = "deepstack_visual_indexes" in raw.values["vision_config"]
        super().__init__(raw, processor, source, "Qwen3-VL" if deep else "Qwen3.5", bias=True)
        config = self.config
        shape = Shape.read(config, "depth", "num_heads", EPS, (27, 1152, 16, 4304))
        same(config, "out_hidden_size", width, 3584, "language model")
        self.shape = shape
        self.theta = config.rope_theta()
        self.read_patches(source, shape.width)
        count = config.integer("num_position_embeddings", 2304)
        self.side = math.isqrt(count)
        if self.side**2 != count:
            raise config.wrong(f'"num_position_embeddings" is {count}, where a square number is needed')
        self.table = source.array("visual.pos_embed.weight", (count, shape.width)).to(source.dtype)
        self.layers = read_layers(source, "visual.blocks.", shape, NAMES)
        square = self.patches.merge**2
        self.merger = Merger(source, "visual.merger.", shape.width, square, width, False)
        self.taps = self._taps() if deep else []
        self.deep = len(self.taps)
        self.deep_mergers = [
            Merger(source, f"visual.deepstack_merger_list.{index}.", shape.width, square, width, True)
            for index in range(self.deep)
        ]

    def _taps(self) -> list[int]:
        """The layers whose output is handed on."""
        taps = self.config.values["deepstack_visual_indexes"]
        layers = range(min(self.shape.layers, MOST_LAYERS))
        if not isinstance(taps, list) or any(type(tap) is not int or tap not in layers for tap in taps):
            raise self.config.wrong('"deepstack_visual_indexes" is no list of layers of the tower')
        if len(set(taps)) < len(taps):
            raise self.config.wrong('"deepstack_visual_indexes" names a layer twice')
        return taps

    def embed(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """See :meth:`QwenTower.embed`."""
        x = self.embedding(patches) + self._positions(rows, columns)
        where = patch_positions(rows, columns, self.patches.merge, x.device)
        turn = rotation(angles(where, self.shape.head // 2, self.theta).flatten(1))
        span, seen = [Span(1, x.shape[0])], list[Tensor]()
        for index, layer in enumerate(self.layers):
            x = layer.forward(x, turn, span)
            if index in self.taps:
                seen.append(self.deep_mergers[self.taps.index(index)].forward(x))
        return torch.cat((self.merger.forward(x), *seen), -1)

    def _positions(self, rows: int, columns: int) -> Tensor:
        """``[rows * columns, width]``, bilinear, the table's corners at the picture's."""
        table = self.table.float().view(1, self.side, self.side, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(table, (rows, columns), mode="bilinear", align_corners=True)[0].permute(1, 2, 0)
        return in_squares(grid, self.patches.merge).to(self.table.dtype)

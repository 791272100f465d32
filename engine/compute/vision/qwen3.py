"""The towers of Qwen3.5 (Qwen Team 2026) and Qwen3-VL (Bai et al. 2025, arXiv 2511.21631).

They are the same but for DeepStack: Qwen3-VL also hands what some of its layers see to the language model's first ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.compute.layers.interface import WeightSource
from engine.compute.vision.layers import LayerNames, PatchSpan, VisionShape, layer_indices, read_layers, rotation
from engine.compute.vision.merging import Merger, QwenTower, in_squares
from engine.compute.vision.settings import TowerConfig, same

NAMES = LayerNames(("norm1", "norm2"), ("attn.qkv",), "attn.proj", ("mlp.linear_fc1",), "mlp.linear_fc2")
MERGER = ("norm", "linear_fc1", "linear_fc2")
EPS = 1e-6
DEEP = "deepstack_visual_indexes"


class Qwen3Tower(QwenTower):
    """The table of positions is square and is stretched to each picture; rows and columns are rotated as well."""

    def __init__(self, said: TowerConfig, source: WeightSource) -> None:
        deep = said.raw.architecture.startswith("Qwen3VL")
        super().__init__(said, source, "Qwen3-VL" if deep else "Qwen3.5")
        config, width = self.config, said.width
        shape = VisionShape.read(config, "depth", "num_heads", EPS, (27, 1152, 16, 4304))
        same(config, "out_hidden_size", width, 3584, "language model")
        self.shape = shape
        self.read_patches(source, shape.width, bias=True)
        count = config.integer("num_position_embeddings", 2304)
        self.side = math.isqrt(count)
        if self.side**2 != count:
            raise config.wrong(f'"num_position_embeddings" is {count}, where a square number is needed')
        self.table = source.array("visual.pos_embed.weight", (count, shape.width)).to(source.dtype)
        self.layers = read_layers(source, "visual.blocks.", shape, NAMES)
        sizes = (shape.width, self.patches.merge**2, width)
        self.merger = Merger(source, "visual.merger.", sizes, MERGER)
        self.taps = layer_indices(config, DEEP, shape.layers, (8, 16, 24)) if deep else []
        self.deep = len(self.taps)
        self.deep_mergers = [
            Merger(source, f"visual.deepstack_merger_list.{index}.", sizes, MERGER, whole=True)
            for index in range(self.deep)
        ]

    def embed(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """Implements :meth:`QwenTower.embed`."""
        x = self.embedding(patches) + self._positions(rows, columns)
        turn = rotation(self.angles(rows, columns))
        span, seen = [PatchSpan(1, x.shape[0])], list[Tensor]()
        for index, layer in enumerate(self.layers):
            x = layer.forward(x, turn, span)
            if index in self.taps:
                seen.append(self.deep_mergers[self.taps.index(index)].forward(x))
        return torch.cat((self.merger.forward(x), *seen), -1)

    def _positions(self, rows: int, columns: int) -> Tensor:
        """``[rows * columns, width]``, bilinear, the table's corners at the picture's."""
        down, across = (stretched(self.side, count, self.device) for count in (rows, columns))
        table = self.table.float().view(self.side, self.side, -1)
        grid = torch.tensordot(down, torch.tensordot(across, table, ([1], [1])), ([1], [1]))
        return in_squares(grid, self.patches.merge).to(self.table.dtype)


def stretched(side: int, count: int, device: torch.device) -> Tensor:
    """``[count, side]``: how much of each of ``side`` values is in each of ``count`` evenly between the outer ones."""
    places = torch.arange(count, dtype=torch.float32, device=device) * ((side - 1) / max(count - 1, 1))
    return (1 - (places[:, None] - torch.arange(side, device=device)).abs()).clamp(min=0)

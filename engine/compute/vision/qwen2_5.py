"""The tower of Qwen2.5-VL (Bai et al. 2025, arXiv 2502.13923): in most layers patches attend within windows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.interface import WeightSource
from engine.compute.vision.layers import LayerNames, PatchSpan, VisionShape, layer_indices, read_layers, rotation
from engine.compute.vision.merging import Merger, QwenTower
from engine.compute.vision.settings import TowerConfig, same

NAMES = LayerNames(("norm1", "norm2"), ("attn.qkv",), "attn.proj", ("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj")
MERGER = ("ln_q", "mlp.0", "mlp.2")
EPS = 1e-6


class Windows(NamedTuple):
    """Tokens window by window, windows of one size in a row: at the right and lower edge there are smaller ones."""

    order: Tensor
    """``[tokens]``: which token comes where."""
    spans: list[PatchSpan]
    """Spans in tokens."""

    @classmethod
    def of(cls, rows: int, columns: int, side: int, device: torch.device) -> Windows:
        grid = torch.arange(rows * columns, device=device).view(rows, columns)
        order, spans = [], []
        for strip in grid.split([rows - rows % side, rows % side]):
            for part in strip.split([columns - columns % side, columns % side], 1):
                height, width = min(side, part.shape[0]), min(side, part.shape[1])
                if part.numel():
                    cut = part.view(part.shape[0] // height, height, part.shape[1] // width, width).transpose(1, 2)
                    order.append(cut.flatten())
                    spans.append(PatchSpan(part.numel() // (height * width), height * width))
        return cls(torch.cat(order), spans)


class Qwen2Tower(QwenTower):
    """Rows and columns are rotated; there is no table of positions."""

    def __init__(self, said: TowerConfig, source: WeightSource) -> None:
        super().__init__(said, source, "Qwen2.5-VL")
        config, width = self.config, said.width
        self.shape = shape = VisionShape.read(
            config, "depth", "num_heads", EPS, (32, 3584, 16, 3420), ("silu", "gelu", "gelu_tanh"), gated=True
        )
        same(config, "out_hidden_size", width, 3584, "language model")
        merge = self.patches.merge
        self.side = config.integer("window_size", 112) // merge // self.patches.patch
        if not self.side:
            raise config.wrong('"window_size" is less than one token')
        self.whole = layer_indices(config, "fullatt_block_indexes", shape.layers, (7, 15, 23, 31))
        self.read_patches(source, shape.width, bias=False)
        self.layers = read_layers(source, "visual.blocks.", shape, NAMES)
        self.merger = Merger(source, "visual.merger.", (shape.width, merge**2, width), MERGER, rms=True)

    def embed(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """Implements :meth:`QwenTower.embed`."""
        merge = self.patches.merge
        windows = Windows.of(rows // merge, columns // merge, self.side, self.device)

        def ordered(x: Tensor) -> Tensor:
            return x.view(-1, merge**2, x.shape[-1])[windows.order].flatten(0, 1)

        x, turn = ordered(self.embedding(patches)), rotation(ordered(self.angles(rows, columns)))
        near, all_of_them = (
            [PatchSpan(runs, length * merge**2) for runs, length in windows.spans],
            [PatchSpan(1, x.shape[0])],
        )
        for index, layer in enumerate(self.layers):
            x = layer.forward(x, turn, all_of_them if index in self.whole else near)
        merged = self.merger.forward(x)
        return torch.empty_like(merged).index_copy_(0, windows.order, merged)

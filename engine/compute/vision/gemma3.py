"""The tower of Gemma 3 (Gemma Team 2025, arXiv 2503.19786): SigLIP (Zhai et al. 2023), its patches averaged in squares.

Every picture is stretched to one square size. Pan and scan, which also shows parts of long pictures, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from engine.compute.layers.interface import WeightSource
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.norm import RMSNorm
from engine.compute.vision.interface import Picture
from engine.compute.vision.layers import (
    LayerNames,
    PatchSpan,
    VisionModule,
    VisionShape,
    patch_embedding,
    read_layers,
    read_norm,
)
from engine.compute.vision.settings import Colours, Section, TowerConfig, same, token_of
from engine.config.raw import RawConfig

NAMES = LayerNames(
    ("layer_norm1", "layer_norm2"),
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.out_proj",
    ("mlp.fc1",),
    "mlp.fc2",
)
MOST_SIDE = 4096
"""Pixels."""


class GemmaTower(VisionModule):
    """Base of both of Gemma's towers; see :class:`engine.compute.vision.interface.Tower`."""

    positions: Literal["text"] = "text"
    most_ratio = math.inf
    deep = 0
    marker: str

    def __init__(
        self, said: TowerConfig, family: str, layers: int, tokens: tuple[int, int, int], source: WeightSource
    ) -> None:
        """``tokens``: begin, placeholder and end of a file that is silent."""
        names = zip(("boi", "image", "eoi"), tokens, strict=True)
        self.begin, self.placeholder, self.end = (token_of(said.raw, name, usual) for name, usual in names)
        said.token(self.marker)
        self.title = f"{family} vision tower, {layers} layers"
        self.device, self.dtype = source.device, source.dtype

    def layout(self, picture: Picture) -> list[int]:
        return [self.begin, *[self.placeholder] * picture.tokens, self.end]


class Gemma3Tower(GemmaTower):
    marker = "<start_of_image>"
    around = ("\n\n", "\n\n")
    bidirectional: Literal["all"] = "all"

    def __init__(self, said: TowerConfig, source: WeightSource) -> None:
        raw, processor, width, _ = said
        config = Section(raw, "vision_config")
        self.shape = shape = VisionShape.read(config, defaults=(12, 768, 12, 3072))
        super().__init__(said, "Gemma 3", shape.layers, (255_999, 262_144, 256_000), source)
        self.colours = _colours(processor)
        size, self.patch = config.integer("image_size", 224, most=MOST_SIDE), config.integer("patch_size", 16, most=256)
        self.side, self.tokens = size // self.patch, math.isqrt(raw.integer("mm_tokens_per_image", 256, most=1 << 16))
        if size % self.patch or self.side % self.tokens:
            raise config.wrong(f"{self.side} patches a side of {size} pixels do not divide into {self.tokens} tokens")
        stretched = Section(processor, "size") if "size" in processor.values else processor
        for key in ("height", "width"):
            same(stretched, key, size, 224)
        self.size = size
        tower = "vision_tower."
        kernel = (shape.width, 3, self.patch, self.patch)
        self.embedding = patch_embedding(source, f"{tower}embeddings.patch_embedding", kernel, True)
        places = source.array(f"{tower}embeddings.position_embedding.weight", (self.side**2, shape.width))
        self.places = places.to(source.dtype)
        self.layers = read_layers(source, f"{tower}encoder.layers.", shape, NAMES)
        self.norm = read_norm(source, f"{tower}post_layernorm", shape.width, shape.eps, False)
        offset = source.vector("multi_modal_projector.mm_soft_emb_norm.weight", shape.width)
        self.soft_norm = RMSNorm(offset.float() + 1, shape.eps, source.numerics)
        across = source.array("multi_modal_projector.mm_input_projection_weight", (shape.width, width))
        self.projection = Dense(across.t().to(source.dtype).contiguous(), None, source.numerics)

    def prepare(self, image: Image.Image, most_tokens: int | None = None) -> Picture:
        """``pixels [patches, 3 * patch * patch]``; the number of tokens is always the same."""
        image = self.colours.resized(image, self.size, self.size)
        grid = self.colours.numbers(image).view(3, self.side, self.patch, self.side, self.patch)
        pixels = grid.permute(1, 3, 0, 2, 4).reshape(self.side**2, -1)
        return self.colours.picture(image, pixels, (self.tokens, self.tokens), self.title)

    @torch.inference_mode()
    def forward(self, pictures: Sequence[Picture]) -> list[Tensor]:
        return [self._embed(picture.pixels.to(self.device, self.dtype)) for picture in pictures]

    def _embed(self, patches: Tensor) -> Tensor:
        x = self.embedding(patches) + self.places
        for layer in self.layers:
            x = layer.forward(x, None, [PatchSpan(1, x.shape[0])])
        return self.projection(
            self.soft_norm.forward(averaged(self.norm.forward(x), self.side, self.side // self.tokens))
        )


def averaged(x: Tensor, columns: int, size: int) -> Tensor:
    """The mean of every ``size`` by ``size`` patches of ``x [rows * columns, width]``, row by row."""
    squares = x.view(-1, size, columns // size, size, x.shape[-1])
    return squares.mean((1, 3)).flatten(0, 1)


def _colours(processor: RawConfig) -> Colours:
    if processor.flag("do_pan_and_scan", False):
        raise processor.wrong('"do_pan_and_scan" is true, and Kvasir shows pictures as a whole only')
    return Colours.read(processor, bicubic=False)

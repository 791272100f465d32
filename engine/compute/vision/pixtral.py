"""The tower of Mistral 3 and Ministral 3: Pixtral's (Agrawal et al. 2024, arXiv 2410.07073) and a merger of patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from engine.compute.layers.activation import FUNCTIONS
from engine.compute.layers.interface import WeightSource
from engine.compute.vision.interface import Picture
from engine.compute.vision.layers import (
    LayerNames,
    PatchSpan,
    VisionModule,
    VisionShape,
    angles,
    patch_embedding,
    read_layers,
    read_norm,
    rotation,
)
from engine.compute.vision.merging import in_squares, patch_positions
from engine.compute.vision.settings import CLIP, MOST_RESIZED, Colours, Section, TowerConfig, token_of
from engine.config.feed_forward import ActivationKind

NAMES = LayerNames(
    ("attention_norm", "ffn_norm"),
    ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    "attention.o_proj",
    ("feed_forward.gate_proj", "feed_forward.up_proj"),
    "feed_forward.down_proj",
)
ACTIVATIONS: tuple[ActivationKind, ...] = ("gelu", "silu", "gelu_tanh")
EPS = 1e-5


class PixtralTower(VisionModule):
    """Implements :class:`engine.compute.vision.interface.Tower`. Rows of tokens end with a token of their own."""

    marker = "[IMG]"
    around = ("", "")
    bidirectional: Literal["none"] = "none"
    positions: Literal["text"] = "text"
    most_ratio = math.inf
    deep = 0

    def __init__(self, said: TowerConfig, source: WeightSource) -> None:
        raw, config, text = said.raw, Section(said.raw, "vision_config"), Section(said.raw, "text_config")
        self.shape = shape = VisionShape.read(
            config, eps=EPS, defaults=(24, 1024, 16, 4096), activations=ACTIVATIONS, bias=False, gated=True
        )
        self.title = f"Pixtral vision tower, {shape.layers} layers"
        self.placeholder = token_of(raw, "image", 10)
        said.token(self.marker)
        self.row_end, self.end = said.token("[IMG_BREAK]"), said.token("[IMG_END]")
        self.device, self.dtype, self.theta = source.device, source.dtype, config.rope_theta()
        self.patch, self.merge = (
            config.integer("patch_size", 16, most=256),
            raw.integer("spatial_merge_size", 2, most=16),
        )
        raw.integer("vision_feature_layer", -1, least=-1, most=-1)  # other layers than the last are not looked at
        size = Section(said.processor, "size") if "size" in said.processor.values else said.processor
        self.longest = size.integer("longest_edge", 1024, most=math.isqrt(MOST_RESIZED))
        self.colours = Colours.read(said.processor, *CLIP)
        bias = raw.flag("multimodal_projector_bias", False)
        self.activation = FUNCTIONS[raw.activation("projector_hidden_act", ACTIVATIONS)]
        tower, projector = "vision_tower.", "multi_modal_projector."
        kernel = (shape.width, 3, self.patch, self.patch)
        self.embedding = patch_embedding(source, f"{tower}patch_conv", kernel, False)
        self.first_norm = read_norm(source, f"{tower}ln_pre", shape.width, EPS, True)
        self.layers = read_layers(source, f"{tower}transformer.layers.", shape, NAMES)
        eps = text.positive("rms_norm_eps", EPS)
        self.last_norm = read_norm(source, f"{projector}norm", shape.width, eps, True)
        square = shape.width * self.merge**2
        self.merger = source.linear(f"{projector}patch_merger.", ("merging_layer",), [shape.width], square, False)
        self.up = source.linear(projector, ("linear_1",), [said.width], shape.width, bias)
        self.down = source.linear(projector, ("linear_2",), [said.width], said.width, bias)

    def prepare(self, image: Image.Image, most_tokens: int | None = None) -> Picture:
        """``pixels [rows * columns, 3 * patch * patch]`` in the order of squares; what is small is not enlarged."""
        rows, columns = self._grid(image.height, image.width, most_tokens)
        step = self.patch * self.merge
        image = self.colours.resized(image, rows * step, columns * step)
        high, wide = rows * self.merge, columns * self.merge
        grid = self.colours.numbers(image).view(3, high, self.patch, wide, self.patch)
        pixels = in_squares(grid.permute(1, 3, 0, 2, 4).reshape(high, wide, -1), self.merge)
        return self.colours.picture(image, pixels, (rows, columns), self.title)

    def _grid(self, height: int, width: int, most_tokens: int | None) -> tuple[int, int]:
        """Rows and columns of tokens: the longest side is bounded, and parts of tokens at the edges are whole ones."""
        shrink = max(1.0, height / self.longest, width / self.longest)
        step, most = self.patch * self.merge, most_tokens or MOST_RESIZED
        while True:
            sides = (height, width) if shrink == 1 else (math.floor(height / shrink), math.floor(width / shrink))
            rows, columns = (max(1, -(-side // step)) for side in sides)
            if rows * columns <= most or rows * columns == 1:
                return rows, columns
            shrink *= max(1.02, math.sqrt(rows * columns / most))

    def layout(self, picture: Picture) -> list[int]:
        rows, columns = picture.grid
        tokens = ([self.placeholder] * columns + [self.row_end]) * rows
        return [*tokens[:-1], self.end]

    @torch.inference_mode()
    def forward(self, pictures: Sequence[Picture]) -> list[Tensor]:
        return [self._embed(picture) for picture in pictures]

    def _embed(self, picture: Picture) -> Tensor:
        rows, columns = (side * self.merge for side in picture.grid)
        x = self.first_norm.forward(self.embedding(picture.pixels.to(self.device, self.dtype)))
        turned = angles(patch_positions(rows, columns, self.merge, self.device), self.shape.head, self.theta)
        # Rows and columns take turns at the frequencies.
        turn = rotation(torch.cat((turned[:, 0, 0::2], turned[:, 1, 1::2]), -1))
        for layer in self.layers:
            x = layer.forward(x, turn, [PatchSpan(1, x.shape[0])])
        squares = self.last_norm.forward(x).view(-1, self.merge**2, self.shape.width)
        merged = self.merger(squares.transpose(1, 2).flatten(1))
        return self.down(self.activation(self.up(merged)))

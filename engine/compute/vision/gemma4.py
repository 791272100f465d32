"""The tower of Gemma 4 (Google DeepMind 2026): a picture keeps its ratio, within a budget of tokens.

Each axis has a table of positions and half of every head to rotate. The patches' means in squares become tokens.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from engine.compute.attention.rotation import RotaryStep
from engine.compute.layers.activation import Activation
from engine.compute.layers.interface import WeightSource
from engine.compute.layers.norm import RMSNorm
from engine.compute.vision.gemma3 import GemmaTower, averaged
from engine.compute.vision.interface import Picture
from engine.compute.vision.layers import PatchSpan, VisionModule, VisionShape, angles, attend, rotation, turned
from engine.compute.vision.settings import Colours, Section, TowerConfig, same
from engine.config.raw import RawConfig

BUDGETS = (70, 140, 280, 560, 1120)
"""Tokens that a picture may have at most."""
BOUNDS = ("input_min", "input_max", "output_min", "output_max")


class ClippedLinear(VisionModule):
    """A linear layer whose inputs and outputs are kept between bounds, where the tower has them."""

    def __init__(self, source: WeightSource, name: str, sizes: tuple[int, int], clipped: bool) -> None:
        self.linear = source.linear(f"{name}.", ("linear",), [sizes[1]], sizes[0], False)
        self.bounds = [source.array(f"{name}.{bound}", ()).to(source.dtype) for bound in BOUNDS] if clipped else []

    def forward(self, x: Tensor) -> Tensor:
        if not self.bounds:
            return self.linear(x)
        return self.linear(x.clamp(*self.bounds[:2])).clamp(*self.bounds[2:])


class Gemma4VisionHeads(NamedTuple):
    heads: int
    kv_heads: int
    size: int
    clipped: bool


class Gemma4VisionAttention(VisionModule):
    """Queries, keys and values are normalised; products of the first two are not scaled."""

    def __init__(self, source: WeightSource, prefix: str, shape: VisionShape, heads: Gemma4VisionHeads) -> None:
        self.heads, width = heads, shape.width

        def linear(name: str, inputs: int, outputs: int) -> ClippedLinear:
            return ClippedLinear(source, prefix + name, (inputs, outputs), heads.clipped)

        self.q = linear("q_proj", width, heads.heads * heads.size)
        self.k, self.v = (linear(f"{name}_proj", width, heads.kv_heads * heads.size) for name in "kv")
        self.out = linear("o_proj", heads.heads * heads.size, width)
        self.norms = [_norm(source, f"{prefix}{name}_norm", heads.size, shape.eps) for name in "qk"]
        self.norms.append(_plain_norm(source, heads.size, shape.eps))

    def forward(self, x: Tensor, turns: tuple[RotaryStep, RotaryStep]) -> Tensor:
        """``x [n, width]`` -> the same shape. The first half of each head turns with the column."""
        q, k, v = (
            norm.forward(layer.forward(x).view(x.shape[0], -1, self.heads.size))
            for norm, layer in zip(self.norms, (self.q, self.k, self.v), strict=True)
        )
        q, k = _turned(q, turns), _turned(k, turns)
        shared = self.heads.heads // self.heads.kv_heads
        k, v = (part.repeat_interleave(shared, 1) for part in (k, v))
        return self.out.forward(attend(q, k, v, [PatchSpan(1, x.shape[0])], scale=1.0))


def _turned(x: Tensor, turns: tuple[RotaryStep, RotaryStep]) -> Tensor:
    return torch.cat([turned(half, turn) for half, turn in zip(x.chunk(2, -1), turns, strict=True)], -1)


class Gemma4VisionLayer(VisionModule):
    """Attention and a gated feed-forward block, each between two norms."""

    def __init__(self, source: WeightSource, prefix: str, shape: VisionShape, heads: Gemma4VisionHeads) -> None:
        names = ("input", "post_attention", "pre_feedforward", "post_feedforward")
        self.norms = [_norm(source, f"{prefix}{name}_layernorm", shape.width, shape.eps) for name in names]
        self.attention = Gemma4VisionAttention(source, f"{prefix}self_attn.", shape, heads)
        self.activation = Activation(shape.activation, source.numerics)
        outwards, inwards = (shape.width, shape.inner), (shape.inner, shape.width)
        self.gate, self.up, self.down = (
            ClippedLinear(source, f"{prefix}mlp.{name}_proj", sizes, heads.clipped)
            for name, sizes in (("gate", outwards), ("up", outwards), ("down", inwards))
        )

    def forward(self, x: Tensor, turns: tuple[RotaryStep, RotaryStep]) -> Tensor:
        """``x [n, width]``, the patches' residual stream -> the same shape."""
        before, after, inner_before, inner_after = (norm.forward for norm in self.norms)
        x = x + after(self.attention.forward(before(x), turns))
        inner = inner_before(x)
        return x + inner_after(self.down.forward(self.activation(self.gate.forward(inner)) * self.up.forward(inner)))


class Gemma4Pictures(GemmaTower):
    """Preparation of Gemma 4's pictures, whatever reads them."""

    marker = "<|image|>"
    around = ("", "")

    def __init__(self, said: TowerConfig, layers: int, silent: str, merged: bool, source: WeightSource) -> None:
        """``silent`` stands for a ``use_bidirectional_attention`` that no file says. ``merged``: patches are as large
        as tokens."""
        raw, processor, _, _ = said
        config, text = Section(raw, "vision_config"), Section(raw, "text_config")
        super().__init__(said, "Gemma 4", layers, (255_999, 258_880, 258_882), source)
        self.bidirectional: Literal["none", "sliding"] = (
            "sliding" if text.values.get("use_bidirectional_attention", silent) == "vision" else "none"
        )
        self.patch, self.pool = (
            config.integer("patch_size", 16, most=256),
            config.integer("pooling_kernel_size", 3, most=16),
        )
        same(processor, "patch_size", self.patch, 16)
        same(processor, "pooling_kernel_size", self.pool, 3)
        self.side = self.patch * (self.pool if merged else 1)
        self.budget = processor.integer("max_soft_tokens", 280)
        if self.budget not in BUDGETS:
            raise processor.wrong(f'"max_soft_tokens" is {self.budget}, where one of {BUDGETS} is needed')
        # Pixels stay between 0 and 1 where the file is silent.
        self.colours = Colours.read(RawConfig({"do_normalize": False} | processor.values, processor.file))

    def prepare(self, image: Image.Image, most_tokens: int | None = None) -> Picture:
        """``pixels [n, side * side * 3]``, between 0 and 1."""
        fitting = [budget for budget in BUDGETS if budget <= min(self.budget, most_tokens or self.budget)]
        height, width = self._size(image.height, image.width, max(fitting, default=BUDGETS[0]))
        if (height, width) != (image.height, image.width):
            image = self.colours.resized(image, height, width)
        rows, columns, token = height // self.side, width // self.side, self.pool * self.patch
        grid = self.colours.numbers(image).view(3, rows, self.side, columns, self.side)
        pixels = grid.permute(1, 3, 2, 4, 0).reshape(rows * columns, -1)
        return self.colours.picture(image, pixels, (height // token, width // token), self.title)

    def _size(self, height: int, width: int, budget: int) -> tuple[int, int]:
        """The largest height and width of squares within the budget, with about the same ratio; at least one each."""
        step = self.pool * self.patch
        factor = math.sqrt(budget * step * step / (height * width))
        rows, columns = (math.floor(factor * side / step) for side in (height, width))
        if not rows:
            rows, columns = 1, min(width // height, budget)
        elif not columns:
            rows, columns = min(height // width, budget), 1
        return rows * step, columns * step

    @torch.inference_mode()
    def forward(self, pictures: Sequence[Picture]) -> list[Tensor]:
        return [self._embed(picture) for picture in pictures]

    @abstractmethod
    def _embed(self, picture: Picture) -> Tensor: ...


class Gemma4Tower(Gemma4Pictures):
    def __init__(self, said: TowerConfig, source: WeightSource) -> None:
        raw, _, width, _ = said
        config = Section(raw, "vision_config")
        shape, heads = _shape(config)
        super().__init__(said, shape.layers, "", False, source)
        places = config.integer("position_embedding_size", 10_240)
        if self.budget * self.pool > places:
            raise config.wrong(f'"position_embedding_size" is {places}, too small for {self.budget} tokens in a row')
        self.width, self.head, self.theta = shape.width, heads.size, config.rope_theta(100.0)
        tower = "vision_tower."
        patch = 3 * self.patch**2
        self.embedding = source.linear(f"{tower}patch_embedder.", ("input_proj",), [shape.width], patch, False)
        table = source.array(f"{tower}patch_embedder.position_embedding_table", (2, places, shape.width))
        self.table = table.to(source.dtype)
        prefixes = (f"{tower}encoder.layers.{index}." for index in range(shape.layers))
        self.layers = [Gemma4VisionLayer(source, prefix, shape, heads) for prefix in prefixes]
        standard = ("std_bias", "std_scale") if config.flag("standardize", False) else ()
        self.standard = [source.array(tower + name, (shape.width,)) for name in standard]
        self.norm = _plain_norm(source, shape.width, shape.eps)
        self.projection = source.linear("embed_vision.", ("embedding_projection",), [width], shape.width, False)

    def _embed(self, picture: Picture) -> Tensor:
        rows, columns = (side * self.pool for side in picture.grid)
        row = torch.arange(rows, device=self.device).repeat_interleave(columns)
        column = torch.arange(columns, device=self.device).repeat(rows)
        pixels = 2 * (picture.pixels.to(self.device) - 0.5)
        x = self.embedding(pixels.to(self.dtype)) + (self.table[0][column] + self.table[1][row])
        turns = rotation(angles(column, self.head // 2, self.theta)), rotation(angles(row, self.head // 2, self.theta))
        for layer in self.layers:
            x = layer.forward(x, turns)
        seen = averaged(x.float(), columns, self.pool) * self.width**0.5
        if self.standard:
            seen = (seen - self.standard[0]) * self.standard[1]
        return self.projection(self.norm.forward(seen.to(self.dtype)))


def _norm(source: WeightSource, name: str, size: int, eps: float) -> RMSNorm:
    return RMSNorm(source.vector(f"{name}.weight", size), eps, source.numerics)


def _plain_norm(source: WeightSource, size: int, eps: float) -> RMSNorm:
    """A norm without a weight in the file."""
    return RMSNorm(torch.ones(size, dtype=source.dtype, device=source.device), eps, source.numerics)


def _shape(config: Section) -> tuple[VisionShape, Gemma4VisionHeads]:
    heads, size = config.integer("num_attention_heads", 12), config.integer("head_dim", 64)
    kv_heads = config.integer("num_key_value_heads", 12)
    if heads % kv_heads or size % 4:
        raise config.wrong(f"{heads} attention heads of {size} cannot share {kv_heads} key-value heads")
    if config.flag("attention_bias", False):
        raise config.wrong('"attention_bias" is true, which no tower of this family has')
    shape = VisionShape(
        config.integer("num_hidden_layers", 16, most=1000),
        config.integer("hidden_size", 768),
        heads,
        config.integer("intermediate_size", 3072),
        config.activation("hidden_activation", ("gelu_tanh", "gelu", "silu")),
        config.positive("rms_norm_eps", 1e-6),
    )
    return shape, Gemma4VisionHeads(heads, kv_heads, size, config.flag("use_clipped_linears", False))

"""Patches in squares: the pictures of Qwen, of which ``merge`` by ``merge`` patches become one token.

Patches are ordered square by square, row by row within each, so that merging is a reshape.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from engine.compute.layers.activation import FUNCTIONS
from engine.compute.layers.interface import WeightSource
from engine.compute.vision.interface import Picture
from engine.compute.vision.layers import MOST_LAYERS, VisionModule, VisionShape, angles, patch_embedding, read_norm
from engine.compute.vision.pictures import check_sides
from engine.compute.vision.settings import CLIP, MOST_RESIZED, Colours, Section, TowerConfig, same, token_of
from engine.config.raw import RawConfig

MOST_RATIO = 200.0
"""Largest ratio of a picture's sides."""


def in_squares(grid: Tensor, merge: int) -> Tensor:
    """``grid [rows, columns, ...]`` of patches -> ``[rows * columns, ...]`` in the order of squares."""
    rows, columns, *rest = grid.shape
    squares = grid.reshape(rows // merge, merge, columns // merge, merge, *rest)
    return squares.transpose(1, 2).reshape(rows * columns, *rest)


def patch_positions(rows: int, columns: int, merge: int, device: torch.device) -> Tensor:
    """Row and column of each patch, ``[rows * columns, 2]``."""
    sides = [torch.arange(count, device=device) for count in (rows, columns)]
    return in_squares(torch.stack(torch.meshgrid(*sides, indexing="ij"), -1), merge)


@dataclass(frozen=True)
class SquarePatches:
    """Preparation of Qwen's pictures (Qwen2VLImageProcessor): their size is kept as far as the bounds allow.

    ``least`` and ``most`` bound a picture's pixels. A tower for videos sees each picture as ``frames`` alike.
    """

    tower: str
    patch: int
    merge: int
    frames: int
    least: int
    most: int
    colours: Colours

    @classmethod
    def read(cls, tower: str, raw: RawConfig, patch: int, merge: int, frames: int) -> SquarePatches:
        """Raises :class:`CheckpointError`."""
        for key, expected in (("patch_size", patch), ("merge_size", merge), ("temporal_patch_size", frames)):
            same(raw, key, expected)
        size = Section(raw, "size") if raw.values.get("size") is not None else raw
        least = size.integer("shortest_edge", 56 * 56, most=MOST_RESIZED)
        most = size.integer("longest_edge", 28 * 28 * 1280, most=MOST_RESIZED)
        # Older files have these instead, and where both are there these hold.
        least = raw.integer("min_pixels", least, most=MOST_RESIZED)
        most = raw.integer("max_pixels", most, most=MOST_RESIZED)
        if least > most:
            raise raw.wrong(f"pictures are to have at least {least} pixels and at most {most}")
        return cls(tower, patch, merge, frames, least, most, Colours.read(raw, *CLIP))

    def prepare(self, image: Image.Image, most_tokens: int | None) -> Picture:
        """``pixels [rows * columns, 3, patch * patch]``. Raises :class:`PictureError`."""
        step = self.patch * self.merge
        height, width = self.size(image.height, image.width, most_tokens)
        image = self.colours.resized(image, height, width)
        numbers = self.colours.numbers(image)
        rows, columns = height // self.patch, width // self.patch
        patches = numbers.view(3, rows, self.patch, columns, self.patch).permute(1, 3, 0, 2, 4)
        pixels = in_squares(patches.reshape(rows, columns, 3, self.patch**2), self.merge)
        return self.colours.picture(image, pixels, (height // step, width // step), self.tower)

    def size(self, height: int, width: int, most_tokens: int | None) -> tuple[int, int]:
        """The nearest height and width that divide into squares, with about the same ratio, within the bounds."""
        check_sides(width, height, MOST_RATIO)
        step = self.patch * self.merge
        most = self.most if most_tokens is None else min(self.most, most_tokens * step * step)
        least = min(self.least, most)
        rows, columns = (round(side / step) * step for side in (height, width))
        if rows * columns > most:
            shrink = math.sqrt(height * width / most)
            return tuple(max(step, math.floor(side / shrink / step) * step) for side in (height, width))  # type: ignore[return-value]
        if rows * columns < least:
            grow = math.sqrt(least / (height * width))
            return tuple(math.ceil(side * grow / step) * step for side in (height, width))  # type: ignore[return-value]
        return rows, columns

    def flat(self, picture: Picture, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The patches as the tower's convolution wants them, ``[n, 3 * frames * patch * patch]``."""
        pixels = picture.pixels.to(device, dtype)
        count, channels, area = pixels.shape
        return pixels[:, :, None].expand(count, channels, self.frames, area).reshape(count, -1)


class Merger(VisionModule):
    """Makes one token of a square's patches; the norm is of each patch, or of a ``whole`` square."""

    def __init__(
        self,
        source: WeightSource,
        prefix: str,
        sizes: tuple[int, int, int],
        names: tuple[str, str, str],
        whole: bool = False,
        rms: bool = False,
    ) -> None:
        """``sizes``: a patch's width, patches in a square, the language model's width. ``names``: norm, both layers."""
        width, square, out = sizes
        self.width, self.whole = width * square, whole
        self.norm = read_norm(source, prefix + names[0], self.width if whole else width, 1e-6, rms)
        self.up = source.linear(prefix, names[1:2], [self.width], self.width, True)
        self.down = source.linear(prefix, names[2:], [out], self.width, True)

    def forward(self, x: Tensor) -> Tensor:
        """``x [n, width]`` -> ``[n / square, out]``."""
        x = self.norm.forward(x.view(-1, self.width)) if self.whole else self.norm.forward(x).view(-1, self.width)
        return self.down(FUNCTIONS["gelu"](self.up(x)))


class QwenTower(VisionModule):
    """Base of all of Qwen's towers; see :class:`engine.compute.vision.interface.Tower`."""

    marker = "<|image_pad|>"
    around = ("", "")
    bidirectional: Literal["none"] = "none"
    positions: Literal["mrope"] = "mrope"
    most_ratio = MOST_RATIO
    deep = 0
    shape: VisionShape

    def __init__(self, said: TowerConfig, source: WeightSource, family: str) -> None:
        """Raises :class:`CheckpointError`."""
        self.config = config = Section(said.raw, "vision_config")
        self.title = f"{family} vision tower, {config.integer('depth', 27, most=MOST_LAYERS)} layers"
        self.placeholder = token_of(said.raw, "image")
        self.device, self.dtype, self.theta = source.device, source.dtype, config.rope_theta()
        said.token(self.marker)
        sizes = ("patch_size", 16, 256), ("spatial_merge_size", 2, 16), ("temporal_patch_size", 2, 16)
        patch, merge, frames = (config.integer(key, usual, most=most) for key, usual, most in sizes)
        self.patches = SquarePatches.read(self.title, said.processor, patch, merge, frames)

    def read_patches(self, source: WeightSource, width: int, bias: bool) -> None:
        """Read the convolution that makes ``width`` numbers of each patch."""
        shape = (width, 3, self.patches.frames, self.patches.patch, self.patches.patch)
        self.embedding = patch_embedding(source, "visual.patch_embed.proj", shape, bias)

    def prepare(self, image: Image.Image, most_tokens: int | None = None) -> Picture:
        return self.patches.prepare(image, most_tokens)

    def layout(self, picture: Picture) -> list[int]:
        """The template has written what stands around the placeholders."""
        return [self.placeholder] * picture.tokens

    @torch.inference_mode()
    def forward(self, pictures: Sequence[Picture]) -> list[Tensor]:
        merge = self.patches.merge
        return [
            self.embed(self.patches.flat(picture, self.device, self.dtype), *(side * merge for side in picture.grid))
            for picture in pictures
        ]

    def angles(self, rows: int, columns: int) -> Tensor:
        """Angles of each patch ``[n, head / 2]``: by its row, then by its column."""
        places = patch_positions(rows, columns, self.patches.merge, self.device)
        return angles(places, self.shape.head // 2, self.theta).flatten(1)

    @abstractmethod
    def embed(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """The embeddings of ``patches [rows * columns, ...]``, one for each square."""

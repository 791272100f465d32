"""Picture settings of a model: those of its configuration and of its processor's, checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.base.files import REPAIR, read_json
from engine.compute.vision.interface import Picture
from engine.config.raw import RawConfig, is_number

FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)
Three = tuple[float, float, float]
"""A number for each of red, green and blue."""
HALF: Three = (0.5, 0.5, 0.5)
CLIP: tuple[Three, Three] = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and deviation of the pictures of CLIP (Radford et al. 2021)."""
MOST_RESIZED = 1 << 25
"""Pixels that a processor may ask for."""


class Section(RawConfig):
    """A JSON object within a configuration, under ``key``; errors name it."""

    def __init__(self, outer: RawConfig, key: str) -> None:
        values = outer.values.get(key)
        if not isinstance(values, dict):
            raise outer.wrong(f'its "{key}" is not a JSON object')
        super().__init__(values, outer.file)
        self.key = key

    def wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f'{self.file}, in "{self.key}": {what}. {REPAIR}')

    def rope_theta(self, usual: float = 10_000.0) -> float:
        """The base of the rotation's frequencies."""
        values = self.rope_values()
        return RawConfig(self.values | values, self.file).positive("rope_theta", usual)


class TowerConfig(NamedTuple):
    """Settings of a tower in its checkpoint."""

    raw: RawConfig
    """All of config.json."""
    processor: RawConfig
    """Settings of how pictures are prepared; see :func:`read_processor`."""
    width: int
    """The language model's hidden size."""
    token_id: Callable[[str], int | None]
    """The id of a special token; None: the tokenizer has no such."""

    def token(self, text: str) -> int:
        """Raises :class:`CheckpointError` where there is no such token."""
        found = self.token_id(text)
        if found is None:
            raise CheckpointError(f"The tokenizer lacks the token {text}, which stands for pictures. {REPAIR}")
        return found


def read_processor(folder: Path) -> RawConfig | None:
    """Settings in a model's folder of how pictures are prepared; None where it has none.

    transformers 5 writes processor_config.json, and those before it preprocessor_config.json; where a folder has both,
    the first holds, as there. Raises :class:`CheckpointError`.
    """
    newer = folder / "processor_config.json"
    values = read_json(newer)
    if values is not None and "image_processor" in values:
        return Section(RawConfig(values, newer), "image_processor")
    older = folder / "preprocessor_config.json"
    values = read_json(older)
    return None if values is None else RawConfig(values, older)


@dataclass(frozen=True)
class Colours:
    """Map of a channel's 256 values to numbers: ``(value * scale - mean) / std``; and the filter of resizing."""

    scale: float
    mean: Three
    std: Three
    resample: Image.Resampling

    @classmethod
    def read(cls, raw: RawConfig, mean: Three = HALF, std: Three = HALF, bicubic: bool = True) -> Colours:
        """``mean``, ``std`` and the filter are those of a silent file. Raises :class:`CheckpointError`."""
        for step in ("do_resize", "do_rescale"):
            if not raw.flag(step, True):
                raise raw.wrong(f'"{step}" is false, and Kvasir prepares no pictures without it')
        if raw.flag("do_center_crop", False):
            raise raw.wrong('"do_center_crop" is true, and Kvasir shows pictures as a whole only')
        usual = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
        resample = raw.integer("resample", int(usual), least=0, most=5)
        if resample not in FILTERS:
            raise raw.wrong(f'"resample" is {resample}, and Kvasir resizes by {", ".join(map(str, FILTERS))}')
        normalised = raw.flag("do_normalize", True)
        colours = cls(
            raw.positive("rescale_factor", 1 / 255),
            _three(raw, "image_mean", mean) if normalised else (0.0, 0.0, 0.0),
            _three(raw, "image_std", std, positive=True) if normalised else (1.0, 1.0, 1.0),
            Image.Resampling(resample),
        )
        if not np.isfinite(colours._table).all():
            raise raw.wrong('its "rescale_factor", "image_mean" and "image_std" give numbers that are too large')
        return colours

    @cached_property
    def _table(self) -> npt.NDArray[np.float32]:
        """``[3, 256]``, in the order of operations and roundings of transformers' processors."""
        with np.errstate(all="ignore"):
            scaled = (np.arange(256, dtype=np.float64) * self.scale).astype(np.float32)
            mean, std = (np.array(values, dtype=np.float32)[:, None] for values in (self.mean, self.std))
            return (scaled[None] - mean) / std

    def numbers(self, image: Image.Image) -> Tensor:
        """The float32 ``[3, height, width]`` of an RGB image."""
        pixels = np.asarray(image)
        return torch.from_numpy(np.stack([self._table[channel][pixels[..., channel]] for channel in range(3)]))

    def resized(self, image: Image.Image, rows: int, columns: int) -> Image.Image:
        """The image in ``rows`` by ``columns`` pixels."""
        return image.resize((columns, rows), resample=self.resample)

    def picture(self, image: Image.Image, pixels: Tensor, grid: tuple[int, int], tower: str) -> Picture:
        """The picture of a resized image; its key is that of the image and of how it becomes numbers for a tower."""
        digest = hashlib.sha256(repr((tower, image.size, grid, self)).encode())
        digest.update(image.tobytes())
        return Picture(pixels, grid, grid[0] * grid[1], digest.digest())


def _three(raw: RawConfig, key: str, usual: Three, positive: bool = False) -> Three:
    values: Any = raw.values.get(key)
    values = list(usual) if values is None else values
    right = isinstance(values, list) and len(values) == 3 and all(map(is_number, values))
    if not right or (positive and min(values) <= 0):
        raise raw.wrong(f'"{key}" is {values!r:.80}, where three {"positive " if positive else ""}numbers are needed')
    first, second, third = map(float, values)
    return first, second, third


def same(raw: RawConfig, key: str, expected: int, usual: int | None = None, other: str = "vision tower") -> None:
    """Raises :class:`CheckpointError` where a setting (``usual`` in a silent file) is not that of the ``other``."""
    found = raw.integer(key, expected if usual is None else usual)
    if found != expected:
        raise raw.wrong(f'"{key}" is {found}, and the {other} has {expected}')


def token_of(raw: RawConfig, name: str, usual: int | None = None) -> int:
    """The token that config.json calls ``{name}_token_id`` or ``{name}_token_index``."""
    key = f"{name}_token_index" if f"{name}_token_index" in raw.values else f"{name}_token_id"
    return raw.integer(key, usual, least=0)

"""The vision tower of a load: whether the model has one that can serve, what it takes, and its reading."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch

from engine.base.devices import traits
from engine.base.errors import CheckpointError, LoadCancelled
from engine.compute.models.base import CausalLM
from engine.compute.vision.embeddings import KEPT_BYTES, PictureEmbeddings
from engine.compute.vision.interface import Tower
from engine.compute.vision.processor import ImageProcessor
from engine.formats.vision import VisionPart, load_tower
from engine.loading.files import ModelFiles
from engine.loading.model import Pictures
from engine.loading.parts.part import ModelAssembly, Need
from engine.loading.placement import DevicePlacement
from engine.loading.reading import WeightReading

NO_ROOM = "{name} reads text only, because its vision tower does not fit into memory together with it."
CANNOT = "{name} reads text only: {reason}."
MOST_TOKENS, MOST_TOKENS_CPU = 4096, 1024
"""Tokens of one picture, which is made smaller where its tower can: a tower's time grows faster than the tokens."""


@dataclass(frozen=True, slots=True)
class TowerPart:
    """``part`` is the tower as it was found, ``tower`` as it was read. ``reason`` is a sentence where it cannot serve.

    ``marker`` is the token by which the model's chat template stands for a picture.
    """

    part: VisionPart | None
    tower: Tower | None = None
    marker: int = -1
    reason: str = ""

    @classmethod
    def find(cls, target: ModelFiles) -> Self:
        """The tower of a checkpoint, if it has one."""
        return cls(target.checkpoint.vision)

    def size(self, target: ModelFiles, place: DevicePlacement, limit: int) -> Need:
        if self.part is None:
            return Need()
        weights = self.part.resident_bytes(place.dtype, place.packing, place.device)
        tokens = most_tokens(place.device, limit)
        working = most_patches(self.part, tokens) * self._widest(self.part) * place.dtype.itemsize + KEPT_BYTES
        return Need(weights=weights, working=working, at_once=self._at_once(self.part, tokens))

    def read(self, target: ModelFiles, model: CausalLM, reading: WeightReading) -> Self:
        """Read the tower; where it cannot serve, the result has none, and the reason."""

        def tick(size: int) -> None:
            if reading.cancelled():
                raise LoadCancelled("The load was cancelled.")

        if self.part is None:
            return self
        place, token_id = reading.place, target.tokenizer.token_id
        try:
            tower = load_tower(self.part, token_id, place.device, place.dtype, place.packing, tick)
        except CheckpointError as error:
            return self.without(CANNOT.format(name=target.name, reason=str(error).rstrip(".")))
        config, rope = target.checkpoint.config, target.checkpoint.config.positions.rope
        pairs = rope.width(config.attention.head_dim) // 2
        if tower.positions == "mrope" and not rope.interleaved and sum(rope.sections) != pairs:
            reason = f'the three numbers of "mrope_section" in its config.json do not add up to {pairs}'
            return self.without(CANNOT.format(name=target.name, reason=reason))
        marker = token_id(tower.marker)
        if marker is None:
            reason = f"its tokenizer has no {tower.marker}, which stands for a picture"
            return self.without(CANNOT.format(name=target.name, reason=reason))
        return replace(self, tower=tower, marker=marker)

    def without(self, reason: str) -> Self:
        """No tower, for this reason."""
        return replace(self, part=None, reason=reason)

    def storage_size(self) -> int:
        return 0 if self.tower is None else self.tower.storage_size()

    def attach(self, made: ModelAssembly) -> None:
        refused = made.files.checkpoint.text_only or self.reason
        if self.tower is None:
            made.pictures = Pictures(refused=refused)
            return
        tokens = most_tokens(made.place.device, made.memory.context)
        processor = ImageProcessor(self.tower, self.marker, tokens)
        made.pictures = Pictures(processor, PictureEmbeddings(self.tower), refused)

    @staticmethod
    def _widest(part: VisionPart) -> int:
        """Elements of a patch that a forward of the tower holds at its widest."""
        vision = part.config.raw.values.get("vision_config") or {}
        width, inner = (vision.get(key) or usual for key, usual in (("hidden_size", 1152), ("intermediate_size", 4304)))
        if "mm_embed_dim" in vision:  # pixels are projected at once: those of a token, normalised, and what comes of it
            side = vision.get("patch_size", 16) * vision.get("pooling_kernel_size", 3)
            return 3 * 3 * side**2 + 3 * vision["mm_embed_dim"]
        # The stream, its norm, queries, keys and values and their float32 rotation; or what is between two products.
        return 2 * width + max(9 * width, 2 * inner)

    @staticmethod
    def _at_once(part: VisionPart, tokens: int) -> int:
        """The most tokens of a picture that are read in one step, as they see each other; 0 where they need not be."""
        values = part.config.raw.values
        if "mm_tokens_per_image" in values:  # Gemma 3
            return min(tokens, int(values["mm_tokens_per_image"]))
        vision = values.get("vision_config") or {}
        seen = part.config.processor.integer("max_soft_tokens", 280)
        return min(tokens, seen) if {"mm_embed_dim", "pooling_kernel_size"} & set(vision) else 0  # Gemma 4


def most_tokens(device: torch.device, context: int) -> int:
    """The most tokens that one picture may take."""
    return min(MOST_TOKENS if traits(device).gpu else MOST_TOKENS_CPU, context // 2)


def most_patches(part: VisionPart, tokens: int) -> int:
    """The most patches of one picture that takes at most so many tokens: a tower's rows."""
    values, processor = part.config.raw.values, part.config.processor
    vision = values.get("vision_config") or {}
    if "mm_embed_dim" in vision:
        return min(tokens, processor.integer("max_soft_tokens", 280))
    if "mm_tokens_per_image" in values:  # of one size, Gemma 3
        return int((vision.get("image_size", 224) // vision.get("patch_size", 16)) ** 2)
    if "pooling_kernel_size" in vision:  # Gemma 4
        return min(tokens, processor.integer("max_soft_tokens", 280)) * int(vision["pooling_kernel_size"] ** 2)
    return 4 * tokens  # Qwen; Pixtral has as many patches of fewer tokens

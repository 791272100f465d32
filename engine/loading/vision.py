"""The vision tower of a load: whether the model has one that can serve, what it takes, and its reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from engine.base.devices import traits
from engine.base.errors import CheckpointError, LoadCancelled
from engine.compute.vision.embeddings import KEPT_BYTES
from engine.compute.vision.interface import Tower
from engine.formats.source import Packing
from engine.formats.vision import VisionPart, load_tower
from engine.loading.parts import ModelFiles

NO_ROOM = "{name} reads text only, because its vision tower does not fit into memory together with it."
CANNOT = "{name} reads text only: {reason}."
MOST_TOKENS, MOST_TOKENS_CPU = 4096, 1024
"""Tokens of one picture, which is made smaller where its tower can: a tower's time grows faster than the tokens."""


@dataclass(frozen=True, slots=True)
class VisionTower:
    """``part`` is the tower as it was found, ``tower`` as it was read. ``reason`` is a sentence where it cannot serve.

    ``marker`` is the token by which the model's chat template stands for a picture.
    """

    part: VisionPart | None
    tower: Tower | None = None
    marker: int = -1
    reason: str = ""

    @classmethod
    def of(cls, files: ModelFiles) -> VisionTower:
        """The tower of a checkpoint, if it has one."""
        return cls(files.checkpoint.vision)

    def read(
        self,
        files: ModelFiles,
        device: torch.device,
        dtype: torch.dtype,
        packing: Packing,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> VisionTower:
        """Read the tower's weights into memory; where it cannot serve, the result has no tower, and the reason. Raises
        :class:`LoadCancelled`."""

        def tick(size: int) -> None:
            if cancelled():
                raise LoadCancelled("The load was cancelled.")

        if self.part is None:
            return self
        name = files.checkpoint.path.name
        try:
            tower = load_tower(self.part, files.tokenizer.token_id, device, dtype, packing, tick)
        except CheckpointError as error:
            return VisionTower(None, reason=CANNOT.format(name=name, reason=str(error).rstrip(".")))
        config = files.checkpoint.config
        pairs = config.rope.width(config.head_dim) // 2
        if tower.positions == "mrope" and not config.rope.interleaved and sum(config.rope.sections) != pairs:
            reason = f'the three numbers of "mrope_section" in its config.json do not add up to {pairs}'
            return VisionTower(None, reason=CANNOT.format(name=name, reason=reason))
        marker = files.tokenizer.token_id(tower.marker)
        if marker is None:
            reason = f"its tokenizer has no {tower.marker}, which stands for a picture"
            return VisionTower(None, reason=CANNOT.format(name=name, reason=reason))
        return replace(self, tower=tower, marker=marker)

    def resident_bytes(self, dtype: torch.dtype, packing: Packing, device: torch.device) -> int:
        """Bytes of the tower's weights."""
        return 0 if self.part is None else self.part.resident_bytes(dtype, packing, device)

    def storage_size(self) -> int:
        """Bytes that are held by now."""
        return 0 if self.tower is None else self.tower.storage_size()

    def working_bytes(self, dtype: torch.dtype, device: torch.device, context: int) -> int:
        """Bytes that a forward of the largest picture holds at its widest, and of the embeddings that are kept."""
        if self.part is None:
            return 0
        vision = self.part.config.raw.values.get("vision_config") or {}
        width, inner = (vision.get(key) or usual for key, usual in (("hidden_size", 1152), ("intermediate_size", 4304)))
        # The stream, its norm, queries, keys and values and their float32 rotation; or what is between two products.
        widest = 2 * width + max(9 * width, 2 * inner)
        if "mm_embed_dim" in vision:  # pixels are projected at once: those of a token, normalised, and what comes of it
            side = vision.get("patch_size", 16) * vision.get("pooling_kernel_size", 3)
            widest = 3 * 3 * side**2 + 3 * vision["mm_embed_dim"]
        return most_patches(self.part, most_tokens(device, context)) * widest * dtype.itemsize + KEPT_BYTES

    def most_whole(self, device: torch.device, context: int) -> int:
        """The most tokens of a picture that are read in one step, as they see each other; 0 where they need not be."""
        if self.part is None:
            return 0
        values, tokens = self.part.config.raw.values, most_tokens(device, context)
        if "mm_tokens_per_image" in values:  # Gemma 3
            return min(tokens, int(values["mm_tokens_per_image"]))
        vision = values.get("vision_config") or {}
        seen = self.part.config.processor.integer("max_soft_tokens", 280)
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

"""Architecture -> the class of its vision tower, imported when first needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from engine.compute.layers.interface import WeightSource
    from engine.compute.vision.interface import Tower
    from engine.compute.vision.settings import TowerConfig

TOWERS = {
    "Gemma3ForConditionalGeneration": "gemma3.Gemma3Tower",
    "Gemma4ForConditionalGeneration": "gemma4.Gemma4Tower",
    "Gemma4UnifiedForConditionalGeneration": "gemma4_unified.Gemma4Embedder",
    "Mistral3ForConditionalGeneration": "pixtral.PixtralTower",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5.Qwen2Tower",
    "Qwen3VLForConditionalGeneration": "qwen3.Qwen3Tower",
    "Qwen3VLMoeForConditionalGeneration": "qwen3.Qwen3Tower",
    "Qwen3_5ForConditionalGeneration": "qwen3.Qwen3Tower",
    "Qwen3_5MoeForConditionalGeneration": "qwen3.Qwen3Tower",
}
"""Architecture as config.json writes it -> module and class of engine.compute.vision."""


def has_tower(architecture: str) -> bool:
    """Return True if Kvasir knows the vision tower of an architecture."""
    return architecture in TOWERS


def read_tower(config: TowerConfig, source: WeightSource) -> Tower:
    """The tower of a checkpoint whose architecture :func:`has_tower`.

    The tensors' names begin with ``visual.``, or with ``vision_tower.`` and a few others. Raises
    :class:`CheckpointError` for what the tower cannot be.
    """
    return cast("Tower", tower_class(config.raw.architecture)(config, source))


def tower_class(architecture: str) -> Any:
    """The class of the tower of an architecture that :func:`has_tower`."""
    module, name = TOWERS[architecture].split(".")
    return getattr(import_module(f"engine.compute.vision.{module}"), name)

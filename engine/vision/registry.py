"""Architecture -> the class of its vision tower, imported when first needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.layers.interface import WeightSource
    from engine.model_config.raw import RawConfig
    from engine.vision.interface import Tower

TOWERS = {
    "Gemma3ForConditionalGeneration": "gemma3.Gemma3Tower",
    "Gemma4ForConditionalGeneration": "gemma4.Gemma4Tower",
    "Qwen3_5ForConditionalGeneration": "qwen3.Qwen3Tower",
    "Qwen3_5MoeForConditionalGeneration": "qwen3.Qwen3Tower",
}
"""Architecture as config.json writes it -> module and class of engine.vision."""


def has_tower(architecture: str) -> bool:
    """Whether Kvasir knows the vision tower of an architecture."""
    return architecture in TOWERS


def read_tower(raw: RawConfig, processor: RawConfig, width: int, source: WeightSource) -> Tower:
    """The tower of a checkpoint whose architecture :func:`has_tower`.

    ``raw`` is the whole of config.json, ``processor`` what :func:`engine.vision.settings.read_processor` found, and
    ``width`` the language model's. The tensors' names begin with ``visual.``, or with ``vision_tower.`` and a few
    others. Raises :class:`CheckpointError` for what the tower cannot be.
    """
    module, name = TOWERS[raw.architecture].split(".")
    make = cast("Callable[..., Tower]", getattr(import_module(f"engine.vision.{module}"), name))
    return make(raw, processor, width, source)

"""Architecture name -> family module, imported when first needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from engine.model_config.model import ModelConfig
    from engine.model_config.raw import RawConfig
    from engine.models.base import CausalLM

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "MiMoForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "SmolLM3ForCausalLM": "smollm3",
    "MixtralForCausalLM": "mixtral",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "GptOssForCausalLM": "gpt_oss",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Phi3ForCausalLM": "phi3",
    "Olmo2ForCausalLM": "olmo2",
    "GraniteForCausalLM": "granite",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "OPTForCausalLM": "opt",
}
"""Architecture as config.json writes it -> module of engine.models."""


class Family(Protocol):
    """What a family module offers: how to read its configuration, and its model class."""

    Model: type[CausalLM]

    def read_config(self, raw: RawConfig) -> ModelConfig:
        """Raises :class:`CheckpointError` for what the family cannot be."""


OTHERS: dict[str, Family] = {}
"""Families that are no modules of engine.models; a new one is added here."""


def family(architecture: str) -> Family:
    """The module of an architecture. Raises :class:`CheckpointError` for an unknown one."""
    if architecture in OTHERS:
        return OTHERS[architecture]
    if architecture not in FAMILIES:
        known = ", ".join(name.removesuffix("ForCausalLM") for name in FAMILIES)
        raise CheckpointError(
            f"This model's architecture, {architecture}, is not one that Kvasir knows. "
            f"Choose a model of one of these families: {known}."
        )
    return cast(Family, import_module(f"engine.models.families.{FAMILIES[architecture]}"))

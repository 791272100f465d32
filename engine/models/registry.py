"""Architecture name -> family module, imported when first needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from engine.checkpoints.errors import CheckpointError

if TYPE_CHECKING:
    from engine.checkpoints.config import RawConfig
    from engine.models.base import CausalLM, ModelConfig

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "MiMoForCausalLM": "mimo",
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


def family(architecture: str) -> Any:
    """The module (a :class:`Family`) of an architecture. Raises :class:`CheckpointError` for an unknown one."""
    if architecture not in FAMILIES:
        known = ", ".join(name.removesuffix("ForCausalLM") for name in FAMILIES)
        raise CheckpointError(
            f"This model's architecture, {architecture}, is not one that Kvasir knows. "
            f"Choose a model of one of these families: {known}."
        )
    return import_module(f"engine.models.{FAMILIES[architecture]}")

"""Architecture name -> family module, imported when first needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from engine.base.errors import CheckpointError

if TYPE_CHECKING:
    from engine.compute.models.base import CausalLM
    from engine.config.model import ModelConfig
    from engine.config.raw import RawConfig

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "MiMoForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "SmolLM3ForCausalLM": "smollm3",
    "MixtralForCausalLM": "mixtral",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "hybrid.qwen3_next",
    "Qwen3_5ForCausalLM": "hybrid.qwen3_5",
    "Qwen3_5MoeForCausalLM": "hybrid.qwen3_5",
    "GptOssForCausalLM": "gpt_oss",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma4ForCausalLM": "gemma4",
    "Gemma4UnifiedForCausalLM": "gemma4",
    "Phi3ForCausalLM": "phi3",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo3",
    "OlmoHybridForCausalLM": "hybrid.olmo_hybrid",
    "GraniteForCausalLM": "granite",
    "GraniteMoeHybridForCausalLM": "hybrid.granite_hybrid",
    "NemotronHForCausalLM": "hybrid.nemotron_h",
    "Lfm2ForCausalLM": "hybrid.lfm2",
    "Lfm2MoeForCausalLM": "hybrid.lfm2",
    "Lfm3ForCausalLM": "hybrid.lfm3",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Glm4MoeLiteForCausalLM": "deepseek_v3",
    "Glm4MoeForCausalLM": "glm4_moe",
    "KimiLinearForCausalLM": "hybrid.kimi_linear",
    "Ministral3ForCausalLM": "ministral3",
    "SeedOssForCausalLM": "seed_oss",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5",
    "MellumForCausalLM": "mellum",
    "LagunaForCausalLM": "laguna",
    "OPTForCausalLM": "opt",
    "BertModel": "bert",
    "RobertaModel": "bert",
    "XLMRobertaModel": "bert",
}
"""Architecture as config.json writes it -> module of engine.compute.models.families."""


CLASSIFIERS = {
    "BertForSequenceClassification": "BertModel",
    "RobertaForSequenceClassification": "RobertaModel",
    "XLMRobertaForSequenceClassification": "XLMRobertaModel",
    "Qwen3ForSequenceClassification": "Qwen3ForCausalLM",
}
"""Architectures with a classifier, which may score documents (engine/formats/ranking.py) -> those of their layers."""
REFUSED = {
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GlmMoeDsaForCausalLM": "deepseek_v32",
}
"""Likewise of those whose configuration is read, to say what they take, and which are refused when loaded."""


class Family(Protocol):
    """Interface of a family module: the reader of its configuration, and its model class."""

    Model: type[CausalLM]

    def read_config(self, raw: RawConfig) -> ModelConfig:
        """Raises :class:`CheckpointError` for what the family cannot be."""


def names_of(architecture: str) -> Sequence[tuple[str, str]]:
    """Replacements in the names of a checkpoint's tensors, where its family has words of its own."""
    return getattr(family(architecture), "NAMES", ())


_MODULES = {name: f"engine.compute.models.families.{module}" for name, module in (FAMILIES | REFUSED).items()}


def register(architecture: str, module: str) -> None:
    """From now on models of the ``architecture`` are of the family whose module is called that."""
    _MODULES[architecture] = module


def with_head(architecture: str) -> str:
    """The architecture of the same layers with a head, of one that is named without: "Qwen3Model" is Qwen3ForCausalLM.
    That of a classifier's layers. Itself where there is none."""
    for ending in ("TextModel", "Model"):
        if architecture.endswith(ending) and (found := f"{architecture.removesuffix(ending)}ForCausalLM") in _MODULES:
            return found
    return CLASSIFIERS.get(architecture, architecture)


def family(architecture: str) -> Family:
    """The module of an architecture. Raises :class:`CheckpointError` for an unknown one."""
    if architecture in ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"):
        raise CheckpointError(
            "This is an assistant, which drafts for a Gemma 4 and writes no text by itself. "
            "Open that model, and choose this folder as what drafts for it."
        )
    module = _MODULES.get(architecture)
    if module is None:
        known = ", ".join(name.removesuffix("ForCausalLM") for name in FAMILIES)
        raise CheckpointError(
            f"This model's architecture, {architecture}, is not one that Kvasir knows. "
            f"Choose a model of one of these families: {known}."
        )
    return cast(Family, import_module(module))

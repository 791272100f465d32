"""GGUF metadata of a model's shape, written so that reading it gives the same configuration back."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.rotary import inverse_frequencies
from engine.config.model import PLACES, ModelConfig
from engine.config.positions import RopeConfig
from engine.formats.gguf.architectures import ARCHITECTURES
from engine.formats.gguf.config import read_config
from engine.formats.gguf.container import GGUFFile, GgufTensorInfo
from engine.services.training.errors import RecipeError

NAMES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3")
"""Architectures that are written, by GGUF's names."""
FAMILIES = {ARCHITECTURES[name].family: name for name in NAMES} | {"MistralForCausalLM": "llama"}
"""Architecture of config.json -> GGUF's."""
SHOWN_BY_TENSORS = ("qkv_bias", "output_bias", "mlp_bias")
_NOT_COMPARED = ("architecture", "dtype", "quantisation", "longer_position", "picture_token", *SHOWN_BY_TENSORS)


def architecture_of(config: ModelConfig) -> str:
    """GGUF's name for it. Raises :class:`RecipeError` for a family that is not written."""
    name = FAMILIES.get(config.architecture)
    if name is None or config.moe is not None:
        known = ", ".join(sorted(family.removesuffix("ForCausalLM") for family in FAMILIES))
        raise RecipeError(
            f"Kvasir writes GGUF of {known}, and this model is {config.architecture}. Choose another format, such as "
            "nf4."
        )
    return name


def metadata(config: ModelConfig, name: str) -> dict[str, Any]:
    """The keys that say what the model's layers are."""
    heads, positions = config.attention, config.positions
    found: dict[str, Any] = {
        "block_count": config.num_layers,
        "context_length": positions.max_position,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.mlp.intermediate_size,
        "attention.head_count": heads.num_heads,
        "attention.head_count_kv": heads.num_kv_heads,
        "attention.key_length": heads.head_dim,
        "attention.value_length": heads.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.dimension_count": positions.rope.width(config.rotated_dim()),
        "vocab_size": config.vocab_size,
        **_rope(positions.rope),
    }
    window = next((window for window in heads.windows if window is not None), None)
    if window is not None:
        found["attention.sliding_window"] = window
    if positions.local_rope is not None:
        found["rope.freq_base_swa"] = positions.local_rope.theta
    if heads.softcap is not None:
        found["attn_logit_softcapping"] = heads.softcap
    if config.scales.logit_softcap is not None:
        found["final_logit_softcapping"] = config.scales.logit_softcap
    return {f"{name}.{key}": value for key, value in found.items()}


def _rope(rope: RopeConfig) -> dict[str, Any]:
    """Metadata of the rotary embedding; llama3's scaling is given by the tensor of :func:`rope_factors` instead."""
    found: dict[str, Any] = {"rope.freq_base": rope.theta}
    if rope.kind in ("linear", "yarn"):
        found |= {"rope.scaling.type": rope.kind, "rope.scaling.factor": rope.factor}
    if rope.kind == "yarn":
        found["rope.scaling.original_context_length"] = rope.original_max_position
        found |= {"rope.scaling.yarn_beta_fast": rope.beta_fast, "rope.scaling.yarn_beta_slow": rope.beta_slow}
    return found


def rope_factors(config: ModelConfig) -> Tensor | None:
    """Divisors of the rotary frequencies, float32 ``[width / 2]``; None if nothing divides them."""
    rope = config.positions.rope
    if rope.kind != "llama3":
        return None
    width = config.rotated_dim()
    plain, _ = inverse_frequencies(RopeConfig(rope.theta), width)
    scaled, _ = inverse_frequencies(rope, width)
    return plain / scaled


def check(config: ModelConfig, keys: Mapping[str, Any], entries: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Raises :class:`RecipeError` unless a file of these keys and tensors (by their shapes) reads as ``config``."""
    infos = {name: GgufTensorInfo(name, 0, shape, path, 0, 0) for name, shape in entries.items()}
    try:
        found = read_config(GGUFFile(path, dict(keys), infos))
    except CheckpointError as error:
        raise RecipeError(f"GGUF has no words for this model: {error}") from error
    if config.positions.rope.kind == "llama3":
        found = found.changed(rope=config.positions.rope)
    for name, place in PLACES.items():
        value_of = attrgetter(place)
        if name not in _NOT_COMPARED and value_of(config) != value_of(found):
            what = name.replace("_", " ")
            raise RecipeError(f"GGUF has no words for this model's {what}. Choose another format, such as nf4.")

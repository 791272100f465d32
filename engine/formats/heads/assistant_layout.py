"""Gemma 4's drafter in Google's repositories (``google/gemma-4-*-it-assistant``): which target it fits.

config.json nests that of its layers in ``text_config``, as transformers' ``Gemma4AssistantConfig`` writes it; what the
layers and their target must have in common is compared field by field before any tensor is read.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.base.errors import CheckpointError
from engine.compute.models.families import gemma4
from engine.compute.models.heads.assistant import sources_of
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

WIDTHS = {"gemma4_assistant": 1536, "gemma4_unified_assistant": 3840}
"""``model_type`` -> the target's hidden size where the file is silent: transformers leaves out what is its default."""
OTHER = "Choose the assistant that was made for this model."


class AssistantLayout(NamedTuple):
    """A drafter that fits its target: its layers, and of how many ``clusters`` of tokens it scores the best
    ``chosen``, 0 where it scores all tokens."""

    config: ModelConfig
    clusters: int = 0
    chosen: int = 0


def is_assistant(raw: RawConfig) -> bool:
    """Return True if config.json is that of a Gemma 4 drafter."""
    names = raw.values.get("architectures")
    named = isinstance(names, list) and any(isinstance(name, str) and "Gemma4" in name for name in names)
    return raw.values.get("model_type") in WIDTHS or (named and "backbone_hidden_size" in raw.values)


def read_layout(raw: RawConfig, target: ModelConfig, where: str) -> AssistantLayout:
    """The drafter of config.json. Raises :class:`CheckpointError` with the first field that does not fit."""
    if not target.architecture.startswith("Gemma4"):
        family = target.architecture.removesuffix("ForCausalLM")
        raise CheckpointError(f"{where} is an assistant for Gemma 4, and this model is of the family {family}. {OTHER}")
    text = raw.values.get("text_config")
    if not isinstance(text, dict):
        raise raw.wrong('its "text_config" is not a JSON object')
    outer = {key: value for key, value in raw.values.items() if key != "text_config"}
    named = RawConfig(outer | text, raw.file)
    width = raw.integer("backbone_hidden_size", WIDTHS.get(str(raw.values.get("model_type"))))
    _same(where, "backbone_hidden_size", width, target.hidden_size)
    _same(where, "vocab_size", named.integer("vocab_size"), target.vocab_size)
    for key in ("hidden_size_per_layer_input", "enable_moe_block", "use_double_wide_mlp"):
        if named.values.get(key):
            raise raw.wrong(f'"{key}" is {named.values[key]!r}, and an assistant has none of that')
    layers = named.integer("num_hidden_layers", most=100)
    _same(where, "num_kv_shared_layers", named.integer("num_kv_shared_layers", layers, least=0) or layers, layers)
    # All of its layers share, which the family would have no layer to share with.
    own = {
        "architectures": ["Gemma4ForCausalLM"],
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": None,
        "tie_word_embeddings": raw.flag("tie_word_embeddings", True),
    }
    config = gemma4.read_config(RawConfig(named.values | own, raw.file))
    _check_layers(where, config, target)
    if not raw.flag("use_ordered_embeddings", False):
        return AssistantLayout(config)
    clusters = raw.integer("num_centroids", 2048)
    chosen = raw.integer("centroid_intermediate_top_k", 32, most=clusters)
    if config.vocab_size % clusters:
        raise raw.wrong(f'"num_centroids" is {clusters:,}, which does not divide the {config.vocab_size:,} tokens')
    return AssistantLayout(config, clusters, chosen)


def _same(where: str, field: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise CheckpointError(f"{where} has {field} {found:,} where this model needs {wanted:,}. {OTHER}")


def _check_layers(where: str, config: ModelConfig, target: ModelConfig) -> None:
    """Each layer and the target's that it reads: heads of keys and values, and no more of a window than is kept."""
    for layer, source in enumerate(sources_of(config, target)):
        own, other = config.heads_of(layer), target.heads_of(source)
        names = ("head_dim", "num_key_value_heads")
        if not config.local[layer]:
            names = ("global_head_dim", "num_global_key_value_heads")
        _same(where, names[0], own.width, other.width)
        _same(where, names[1], own.kv_heads, other.kv_heads)
        window, kept = config.windows[layer], target.windows[source]
        if window is not None and kept is not None and window > kept:
            _same(where, "sliding_window", window, kept)

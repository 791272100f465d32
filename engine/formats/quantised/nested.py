"""The text model inside a checkpoint that holds more: a vision tower with it, or names of an older layout.

Files of multimodal models keep the text model's configuration in ``text_config`` and put a prefix before its tensors'
names; which one changed with the version of transformers that wrote them. Here both become what the text model's own
files would hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.base.errors import CheckpointError
from engine.config.raw import RawConfig
from engine.formats.generation import token_ids
from engine.formats.safetensors import AGAIN, TensorInfo

PREFIXES = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
"""Prefixes of a text model's tensor names in a multimodal file, and what stands for them in its own files."""
OWN = ("lm_head.", "mtp.", "model.embed_tokens.", "model.layers.", "model.norm.")
"""Beginnings of names that a multimodal file may have as the text model's own files do (as Qwen2.5-VL's do)."""
VISION = ("visual.", "vision_tower.", "multi_modal_projector.", "embed_vision.", "vision_embedder.")
"""Beginnings of the names of a vision tower's tensors, after ``model.`` in newer files."""
BARE = ("embed_tokens.", "layers.", "norm.")
"""Beginnings of names in files of models without a head, as embedding models are: the model's prefix is left out."""
OPT_PREFIX = ("decoder.", "model.decoder.")
"""OPT's first files were written without the model's prefix."""
TEXT_MODELS = {
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Gemma4ForConditionalGeneration": "Gemma4ForCausalLM",
    "Gemma4UnifiedForConditionalGeneration": "Gemma4UnifiedForCausalLM",
    "Mistral3ForConditionalGeneration": "MistralForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
}
"""Multimodal architecture -> that of the text model in it."""
FLAT = ("Qwen2_5_VLForConditionalGeneration",)
"""Multimodal architectures whose older files have the text model's values next to the others."""
MODEL_TYPES = {"ministral3": "Ministral3ForCausalLM"}
"""The text models that one multimodal architecture may have besides, by their ``model_type``."""
_GEMMA = {"hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8, "num_key_value_heads": 4,
          "head_dim": 256, "max_position_embeddings": 131_072}  # fmt: skip
_GEMMA4 = _GEMMA | {"vocab_size": 262_144, "num_hidden_layers": 30}
DEFAULTS: dict[str, dict[str, Any]] = {
    "Gemma3ForConditionalGeneration": _GEMMA | {"vocab_size": 262_208, "num_hidden_layers": 26},
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": _GEMMA4 | {"max_position_embeddings": 262_144, "sliding_window": 1024},
    "Qwen3VLMoeForConditionalGeneration": {"norm_topk_prob": True},
}
"""Values where a family's ``text_config`` is silent: transformers writes only what differs from its defaults."""

AXES: dict[str, tuple[list[int], bool]] = {
    "Qwen2_5_VLForConditionalGeneration": ([16, 24, 24], False),
    "Qwen3VLForConditionalGeneration": ([24, 20, 20], True),
    "Qwen3VLMoeForConditionalGeneration": ([24, 20, 20], True),
    "Qwen3_5ForConditionalGeneration": ([11, 11, 10], True),
    "Qwen3_5MoeForConditionalGeneration": ([11, 11, 10], True),
}
"""Architectures that rotate by time, row and column: the ``mrope_section`` of a silent file, and whether pairs of
dimensions take turns, which no file decides."""


def text_config(raw: RawConfig) -> RawConfig:
    """The configuration of the text model; ``raw`` itself where it is no part of another (that Kvasir knows)."""
    if raw.architecture not in TEXT_MODELS:
        return raw
    text = raw.values.get("text_config", {} if raw.architecture in FLAT else None)
    if not isinstance(text, dict):
        raise raw.wrong('its "text_config" is not a JSON object')
    outer = {key: value for key, value in raw.values.items() if key != "text_config"}
    own = {"architectures": [MODEL_TYPES.get(str(text.get("model_type")), TEXT_MODELS[raw.architecture])]}
    values = DEFAULTS.get(raw.architecture, {}) | outer | text | own | _tokens(outer, text)
    return RawConfig(_with_axes(raw.architecture, values), raw.file)


def _tokens(outer: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """Begin- and end-of-text tokens of both configurations; the outer begin token wins, as in transformers."""
    ends = [index for values in (outer, text) for index in token_ids(values.get("eos_token_id"))]
    begins = next((values["bos_token_id"] for values in (outer, text) if values.get("bos_token_id") is not None), None)
    return {"eos_token_id": list(dict.fromkeys(ends)), "bos_token_id": begins}


def _with_axes(architecture: str, values: dict[str, Any]) -> dict[str, Any]:
    """The configuration with what :data:`AXES` says, where the others look for it."""
    key = "rope_scaling" if values.get("rope_parameters") is None else "rope_parameters"
    rope = values.get(key) or {}
    if architecture not in AXES or not isinstance(rope, dict):
        return values
    sections, interleaved = AXES[architecture]
    return values | {key: {"mrope_section": sections} | rope | {"mrope_interleaved": interleaved}}


def text_entries(
    entries: Mapping[str, TensorInfo], nested: bool, words: Sequence[tuple[str, str]] = ()
) -> dict[str, TensorInfo]:
    """The text model's tensors by their plain names. In a ``nested`` checkpoint others are left out.

    ``words`` are replaced in names, where a family's checkpoints have words of their own.

    Raises :class:`CheckpointError` where two tensors come to have one name.
    """
    found: dict[str, TensorInfo] = {}
    for name, entry in entries.items():
        plain = _plain(name, nested)
        if plain is None:
            continue
        for own, usual in words:
            plain = plain.replace(own, usual)
        if plain in found:
            raise CheckpointError(f"{name} and {found[plain].name} are the same tensor of the model. {AGAIN}")
        found[plain] = entry
    return found


def vision_entries(entries: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors of a vision tower in a nested checkpoint, by names that begin as in :data:`VISION`."""
    found = {name.removeprefix("model."): entry for name, entry in entries.items()}
    return {
        name.replace("vision_tower.vision_model.", "vision_tower."): entry
        for name, entry in found.items()
        if name.startswith(VISION)
    }


def _plain(name: str, nested: bool) -> str | None:
    if not nested:
        return _replaced(name, *OPT_PREFIX) or (f"model.{name}" if name.startswith(BARE) else name)
    for prefix in PREFIXES:
        plain = _replaced(name, *prefix)
        if plain is not None:
            return plain
    return name if name.startswith(OWN) else None


def _replaced(name: str, prefix: str, by: str) -> str | None:
    return by + name.removeprefix(prefix) if name.startswith(prefix) else None

"""The metadata of a GGUF file to a :class:`ModelConfig`, through the reader of the model's own family."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import torch

from engine.base.errors import CheckpointError
from engine.compute.models.registry import family
from engine.config.model import ModelConfig
from engine.config.raw import REPAIR, RawConfig
from engine.formats.generation import GenerationConfig, sampling_defaults
from engine.formats.gguf import rope
from engine.formats.gguf.architectures import ARCHITECTURES, Architecture
from engine.formats.gguf.container import GGUFFile
from engine.formats.gguf.keys import MetadataKeys
from engine.formats.gguf.special import SpecialTokens
from engine.formats.gguf.types import FLOATING, TYPES
from engine.formats.gguf.vocabulary import TOKENS

MAX_HEAD_DIM = 1 << 14
_EPSILON, _OTHER = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
"""The latter stands in its place in some files of Nemotron-H."""
_LAYER = re.compile(r"blk\.(\d{1,9})\.")
_SAMPLING = {
    "temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "repetition_penalty": "penalty_repeat"
}  # fmt: skip
"""Settings, and what follows ``general.sampling.`` in their keys."""
_NO_MODELS = {
    "mmproj": "what a model sees or hears with (a projector)",
    "adapter": "changes to a model (an adapter)",
    "imatrix": "what a quantiser measured of a model (an importance matrix)",
}
"""Contents of files that are no models, by general.type."""


def architecture(files: GGUFFile) -> Architecture:
    """Table entry that says how to read the file. Raises :class:`CheckpointError` for an architecture that Kvasir does
    not know, and for a file that holds no language model."""
    return ARCHITECTURES[_name(files)]


def _name(files: GGUFFile) -> str:
    name, kind = files.metadata.get("general.architecture"), files.metadata.get("general.type")
    if name == "clip":
        kind = "mmproj"
    if isinstance(kind, str) and kind in _NO_MODELS:
        raise CheckpointError(
            f"{files.path.name} holds only {_NO_MODELS[kind]}, and no language model. Open the model itself."
        )
    if not isinstance(name, str):
        raise CheckpointError(f"{files.path.name} does not name the model's architecture. {REPAIR}")
    if name not in ARCHITECTURES:
        raise CheckpointError(
            f"{files.path.name} is a model of the architecture {name[:100]!r}, and in GGUF Kvasir reads "
            f"{', '.join(ARCHITECTURES)}. Choose another model, or this one in safetensors."
        )
    return name


def read_config(files: GGUFFile) -> ModelConfig:
    """Raises :class:`CheckpointError` for what is missing, contradictory, or not of a family that Kvasir has."""
    name, kind = _name(files), architecture(files)
    keys = MetadataKeys(files.metadata, name, files.path)
    if keys.optional_integer("expert_count") and not kind.experts:
        raise CheckpointError(
            f"{files.path.name} is a mixture of experts, which Kvasir does not know of the architecture {name!r}. "
            "Choose another model."
        )
    values = _sizes(keys, kind) | {
        "architectures": [kind.family],
        "vocab_size": _vocabulary(files),
        "tie_word_embeddings": "output.weight" not in files.entries,
        "rope_parameters": rope.parameters(keys),
        "dtype": str(_dtype(files)),
    }
    raw = RawConfig(values | kind.values(keys, files, values), files.path)
    config: ModelConfig = family(raw.architecture).read_config(raw)
    config = kind.finish(config, keys)
    return config.changed(rope=rope.with_factors(config.positions.rope, config.rotated_dim(), files))


def _sizes(keys: MetadataKeys, kind: Architecture) -> dict[str, Any]:
    """Sizes of the model; the largest of those that may differ from layer to layer."""
    heads, hidden = keys.integer("attention.head_count"), keys.integer("embedding_length")
    head_dim = _head_dim(keys, hidden // heads, kind.heads)
    kv_heads = "attention.head_count_kv"
    return {
        "hidden_size": hidden,
        "intermediate_size": max(keys.of_layers("feed_forward_length")) if kind.varied else _inner(keys),
        "num_hidden_layers": keys.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(keys.of_layers(kv_heads))
        if kind.varied
        else keys.optional_integer(kv_heads) or heads,
        "head_dim": head_dim,
        "rms_norm_eps": keys.number(_EPSILON if keys.get(_EPSILON) is not None or keys.get(_OTHER) is None else _OTHER),
        "max_position_embeddings": keys.integer("context_length"),
    }


def _head_dim(keys: MetadataKeys, usual: int, kind: str) -> int:
    rotated = keys.optional_integer("rope.dimension_count") if kind == "whole" else None
    head_dim = keys.optional_integer("attention.key_length") or rotated or usual
    if kind == "latent":
        # What newer files give as the plain lengths are those of what is cached.
        head_dim = keys.optional_integer("attention.key_length_mla") or head_dim
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise keys.wrong(f"a head dimension of {head_dim:,} is absurd")
    if kind == "latent":
        return head_dim
    if (keys.optional_integer("attention.value_length") or head_dim) != head_dim:
        raise keys.wrong("its keys and values differ in length, which this family does not do in Kvasir")
    if (rotated or head_dim) != head_dim:
        raise keys.wrong("it rotates only a part of each head, which this family does not do in Kvasir")
    return head_dim


def _inner(keys: MetadataKeys) -> int:
    """The feed-forward size. Where all layers have experts, the file may give the experts' size alone."""
    only = keys.get("feed_forward_length") is None and keys.get("expert_feed_forward_length") is not None
    return keys.integer("expert_feed_forward_length" if only else "feed_forward_length")


def _vocabulary(files: GGUFFile) -> int:
    """The token table's rows, some of which may have no token."""
    table, tokens = files.entries.get("token_embd.weight"), files.metadata.get(TOKENS)
    if table is None or len(table.shape) != 2:
        raise CheckpointError(f"{files.path.name} has no token table (token_embd.weight). {REPAIR}")
    if isinstance(tokens, list) and len(tokens) > table.shape[0]:
        raise CheckpointError(
            f"{files.path.name} has {len(tokens):,} tokens and a token table of {table.shape[0]:,} rows. {REPAIR}"
        )
    return table.shape[0]


USUAL = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""Sampling for files that name none: llama.cpp's own (common/common.h), for which they were made. A small model that
draws from all of its vocabulary at temperature 1 writes nonsense."""


def _matrices(files: GGUFFile) -> Counter[int]:
    """Weights in matrices by type."""
    counts: Counter[int] = Counter()
    for entry in files.entries.values():
        if len(entry.shape) > 1:
            counts[entry.type] += entry.numel
    return counts


def _dtype(files: GGUFFile) -> torch.dtype:
    """The dtype of most unpacked weights in matrices; float16, as the blocks' scales, where all are packed."""
    floating = [kind for kind, _ in _matrices(files).most_common() if kind in FLOATING]
    return FLOATING[floating[0]] if floating else torch.float16


def title(files: GGUFFile) -> str:
    """The types of the matrices, for people: "GGUF Q4_K with Q6_K"."""
    names = [TYPES[kind].name for kind, _ in _matrices(files).most_common()]
    return f"GGUF {' with '.join(names[:2])}" + (" and others" if len(names) > 2 else "")


def read_generation(files: GGUFFile, special: SpecialTokens | None) -> GenerationConfig:
    """The ids that end a text, and the sampling that newer files name, else :data:`USUAL`."""
    stated = {name: files.metadata.get(f"general.sampling.{key}") for name, key in _SAMPLING.items()}
    silent = all(value is None for value in stated.values())
    sampling, notices = sampling_defaults(USUAL if silent else stated, files.path.name)
    if special is None:
        return GenerationConfig(sampling=sampling, notices=notices)
    return GenerationConfig(list(special.eos_ids), special.bos_id, sampling, notices)


def next_layers(files: GGUFFile) -> int:
    """Layers of multi-token prediction, which come after those of the model."""
    return MetadataKeys(files.metadata, _name(files), files.path).optional_integer("nextn_predict_layers") or 0


def check_layers(files: GGUFFile, layers: int) -> None:
    """Raises :class:`CheckpointError` where the file has more layers than its metadata says."""
    found = max((int(match[1]) for name in files.entries if (match := _LAYER.match(name))), default=0)
    if found >= layers:
        raise CheckpointError(f"{files.path.name} has {found + 1} layers where its metadata says {layers}. {REPAIR}")

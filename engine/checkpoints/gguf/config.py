"""The metadata of a GGUF file to a :class:`ModelConfig`, through the reader of the model's own family."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.checkpoints.config import REPAIR, RawConfig
from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.generation import GenerationConfig
from engine.checkpoints.gguf.container import Entry, GGUFFile
from engine.checkpoints.gguf.metadata import Value
from engine.checkpoints.gguf.names import ROPE_FACTORS
from engine.checkpoints.gguf.tokenizer import special_tokens
from engine.checkpoints.gguf.types import FLOATING, TYPES
from engine.layers.rotary import RopeConfig
from engine.models.base import ModelConfig
from engine.models.registry import family
from engine.protocol import Sampling

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""GGUF's architecture -> Hugging Face's. A Mistral is saved as a llama."""
MAX_HEAD_DIM = 1 << 14
TOKENS = "tokenizer.ggml.tokens"
_LAYER = re.compile(r"blk\.(\d{1,9})\.")
_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


class _Keys:
    """One architecture's keys with their types checked."""

    def __init__(self, metadata: dict[str, Value], architecture: str, file: Path) -> None:
        self.metadata, self.architecture, self.file = metadata, architecture, file

    def wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file.name}: {what}. {REPAIR}")

    def get(self, key: str) -> Value | None:
        return self.metadata.get(f"{self.architecture}.{key}")

    def optional_integer(self, key: str) -> int | None:
        """A list, one value a layer, counts as its value where all are the same."""
        value = self.get(key)
        if isinstance(value, list) and value:
            if any(other != value[0] for other in value):
                raise self.wrong(f'"{key}" differs from layer to layer, which this family does not do in Kvasir')
            value = value[0]
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise self.wrong(f'"{key}" is {_short(value)}, where a whole number is needed')
        return value

    def integer(self, key: str) -> int:
        value = self.optional_integer(key)
        if not value:
            raise self.wrong(f'"{self.architecture}.{key}" is missing')
        return value

    def optional_number(self, key: str) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
            raise self.wrong(f'"{key}" is {_short(value)}, where a number is needed')
        return float(value)  # type: ignore[arg-type]


def architecture(files: GGUFFile) -> str:
    """As GGUF writes it. Raises :class:`CheckpointError` for one that Kvasir does not know."""
    name = files.metadata.get("general.architecture")
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
    name = architecture(files)
    keys = _Keys(files.metadata, name, files.path)
    if keys.optional_integer("expert_count"):
        raise CheckpointError(
            f"{files.path.name} is a mixture of experts, which Kvasir does not read in GGUF. Choose another model."
        )
    values = _sizes(keys) | {
        "architectures": [ARCHITECTURES[name]],
        "vocab_size": _vocabulary(files),
        "tie_word_embeddings": "output.weight" not in files.entries,
        "rope_parameters": _rope(keys),
        "dtype": _DTYPES[_dtype(files)],
    }
    window = keys.optional_integer("attention.sliding_window")
    if name == "llama" and window:
        values |= {"architectures": ["MistralForCausalLM"], "sliding_window": window}
    raw = RawConfig(values, files.path)
    config: ModelConfig = family(raw.architecture).read_config(raw)
    return replace(config, rope=_with_factors(config.rope, config.head_dim, files))


def _sizes(keys: _Keys) -> dict[str, Any]:
    heads, hidden = keys.integer("attention.head_count"), keys.integer("embedding_length")
    rotated = keys.optional_integer("rope.dimension_count")
    head_dim = keys.optional_integer("attention.key_length") or rotated or hidden // heads
    if head_dim > MAX_HEAD_DIM:
        raise keys.wrong(f"a head dimension of {head_dim:,} is absurd")
    if (keys.optional_integer("attention.value_length") or head_dim) != head_dim:
        raise keys.wrong("its keys and values differ in length, which this family does not do in Kvasir")
    if (rotated or head_dim) != head_dim:
        raise keys.wrong("it rotates only a part of each head, which this family does not do in Kvasir")
    epsilon = keys.optional_number("attention.layer_norm_rms_epsilon")
    if epsilon is None:
        raise keys.wrong(f'"{keys.architecture}.attention.layer_norm_rms_epsilon" is missing')
    return {
        "hidden_size": hidden,
        "intermediate_size": keys.integer("feed_forward_length"),
        "num_hidden_layers": keys.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.optional_integer("attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "rms_norm_eps": epsilon,
        "max_position_embeddings": keys.integer("context_length"),
    }


def _rope(keys: _Keys) -> dict[str, Any]:
    """As ``rope_parameters`` of config.json. ``rope.scale_linear`` is the older way to write linear scaling."""
    theta = keys.optional_number("rope.freq_base")
    found: dict[str, Any] = {"rope_theta": 10000.0 if theta is None else theta}
    if found["rope_theta"] <= 1:
        raise keys.wrong(f'"rope.freq_base" is {theta}, where a number above 1 is needed')
    kind, factor = keys.get("rope.scaling.type"), keys.optional_number("rope.scaling.factor")
    if kind is None:
        factor = factor or keys.optional_number("rope.scale_linear")
        kind = "linear" if factor not in (None, 0.0, 1.0) else "none"
    if kind == "none":
        return found
    found |= {"rope_type": _short(kind) if not isinstance(kind, str) else kind[:100], "factor": factor}
    found["original_max_position_embeddings"] = keys.optional_integer("rope.scaling.original_context_length")
    if kind == "yarn":
        for key in ("beta_fast", "beta_slow"):
            found[key] = keys.optional_number(f"rope.scaling.yarn_{key}")
            if found[key] is not None and found[key] <= 0:
                raise keys.wrong(f'"rope.scaling.yarn_{key}" is {found[key]}, where a positive number is needed')
        attention = keys.optional_number("rope.scaling.attn_factor")
        # ggml multiplies it with YaRN's own factor; Hugging Face's attention_factor replaces that.
        if attention is not None and attention != 1 and factor is not None and factor > 1:
            found["attention_factor"] = attention * (0.1 * math.log(factor) + 1.0)
    return found


def _with_factors(rope: RopeConfig, head_dim: int, files: GGUFFile) -> RopeConfig:
    """Llama 3.1's scaling is stored as what it divides each frequency by."""
    entry = files.entries.get(ROPE_FACTORS)
    if entry is None:
        return rope
    if entry.shape != (head_dim // 2,) or entry.type not in FLOATING:
        raise CheckpointError(
            f"{ROPE_FACTORS} has the shape {list(entry.shape)} in {TYPES[entry.type].name} where {head_dim // 2} "
            f"numbers are needed. {REPAIR}"
        )
    factors = files.floating(ROPE_FACTORS).double()
    if not bool((torch.isfinite(factors) & (factors > 0)).all()):
        raise CheckpointError(f"{ROPE_FACTORS} holds values that no frequency can be divided by. {REPAIR}")
    return replace(rope, factors=tuple(factors.tolist()))


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


def _matrices(files: GGUFFile) -> Counter[int]:
    """Weights in matrices by type."""
    counts: Counter[int] = Counter()
    for entry in files.entries.values():
        if len(entry.shape) > 1:
            counts[entry.type] += entry.numel
    return counts


def _dtype(files: GGUFFile) -> torch.dtype:
    """That of most unpacked weights in matrices; float16, as the blocks' scales, where all are packed."""
    floating = [kind for kind, _ in _matrices(files).most_common() if kind in FLOATING]
    return FLOATING[floating[0]] if floating else torch.float16


def title(files: GGUFFile) -> str:
    """The types of the matrices, for people: "GGUF Q4_K with Q6_K"."""
    names = [TYPES[kind].name for kind, _ in _matrices(files).most_common()]
    return f"GGUF {' with '.join(names[:2])}" + (" and others" if len(names) > 2 else "")


def packed(entry: Entry) -> bool:
    """Whether the tensor is quantised."""
    return TYPES[entry.type].weights > 1


def read_generation(files: GGUFFile) -> GenerationConfig:
    """The ids that end a text, and the sampling that newer files name; what makes no sense there counts as missing."""

    def number(key: str, neutral: float) -> float:
        value = files.metadata.get(f"general.sampling.{key}")
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else neutral

    sampling = Sampling(
        temperature=number("temp", 1.0),
        top_k=int(number("top_k", 0)),
        top_p=number("top_p", 1.0),
        min_p=number("min_p", 0.0),
        repetition_penalty=number("penalty_repeat", 1.0),
    )
    if TOKENS not in files.metadata:
        return GenerationConfig(sampling=sampling)
    special = special_tokens(files.metadata)
    return GenerationConfig(list(special.eos_ids), special.bos_id, sampling)


def check_layers(files: GGUFFile, layers: int) -> None:
    """Raises :class:`CheckpointError` where the file has more layers than its metadata says."""
    found = max((int(match[1]) for name in files.entries if (match := _LAYER.match(name))), default=0)
    if found >= layers:
        raise CheckpointError(f"{files.path.name} has {found + 1} layers where its metadata says {layers}. {REPAIR}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

"""The rotation that a GGUF file's metadata and its small tensors describe."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from engine.base.errors import CheckpointError
from engine.config.positions import RopeConfig
from engine.config.raw import REPAIR
from engine.formats.gguf.container import GGUFFile
from engine.formats.gguf.keys import MetadataKeys, short
from engine.formats.gguf.names import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS
from engine.formats.gguf.types import FLOATING, TYPES


def base(keys: MetadataKeys, key: str, missing: float) -> float:
    """The base of the frequencies under ``key``."""
    theta = keys.optional_number(key)
    if theta is not None and theta <= 1:
        raise keys.wrong(f'"{key}" is {theta}, where a number above 1 is needed')
    return missing if theta is None else theta


def parameters(keys: MetadataKeys) -> dict[str, Any]:
    """Values of ``rope_parameters`` in config.json. ``rope.scale_linear`` is the older way to write linear scaling."""
    found: dict[str, Any] = {"rope_theta": base(keys, "rope.freq_base", 10000.0)}
    kind, factor = keys.get("rope.scaling.type"), keys.optional_number("rope.scaling.factor")
    if kind is None:
        factor = factor or keys.optional_number("rope.scale_linear")
        kind = "linear" if factor not in (None, 0.0, 1.0) else "none"
    if kind == "none":
        return found
    found |= {"rope_type": short(kind) if not isinstance(kind, str) else kind[:100], "factor": factor}
    found["original_max_position_embeddings"] = keys.optional_integer("rope.scaling.original_context_length")
    return found | _yarn(keys, factor) if kind == "yarn" else found


def _yarn(keys: MetadataKeys, factor: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("beta_fast", "beta_slow"):
        found[key] = keys.optional_number(f"rope.scaling.yarn_{key}")
        if found[key] is not None and found[key] <= 0:
            raise keys.wrong(f'"rope.scaling.yarn_{key}" is {found[key]}, where a positive number is needed')
    # ggml multiplies these with YaRN's own factor; Hugging Face's attention_factor replaces that.
    stated = [keys.optional_number(f"rope.scaling.{key}") for key in ("attn_factor", "yarn_attn_factor")]
    attention = math.prod(1.0 if value is None else value for value in stated)
    if attention != 1 and factor is not None and factor > 1:
        found["attention_factor"] = attention * (0.1 * math.log(factor) + 1.0)
    return found


def longrope(keys: MetadataKeys, files: GGUFFile, pairs: int) -> dict[str, Any]:
    """LongRoPE's ``rope_parameters``, with two sets of factors, ``pairs`` each. Empty where the file has none."""
    if LONG_FACTORS not in files.entries and SHORT_FACTORS not in files.entries:
        return {}
    attention = keys.optional_number("rope.scaling.attn_factor")
    return {
        "rope_type": "longrope",
        "short_factor": factors(files, SHORT_FACTORS, pairs),
        "long_factor": factors(files, LONG_FACTORS, pairs),
        "original_max_position_embeddings": keys.integer("rope.scaling.original_context_length"),
        "attention_factor": 1.0 if attention is None else attention,
    }


def share(width: int, head_dim: int) -> float:
    """``width`` of a head's dimensions as a share that :meth:`RopeConfig.width` turns back into ``width``."""
    part = width / head_dim
    return part if int(head_dim * part) == width else math.nextafter(part, 2)


def with_factors(rope: RopeConfig, head_dim: int, files: GGUFFile) -> RopeConfig:
    """Llama 3.1's scaling is stored as what it divides each frequency by."""
    if ROPE_FACTORS not in files.entries:
        return rope
    return replace(rope, factors=tuple(factors(files, ROPE_FACTORS, rope.width(head_dim) // 2)))


def factors(files: GGUFFile, name: str, count: int) -> list[float]:
    """A tensor of ``count`` positive numbers. Raises :class:`CheckpointError` where it is not one."""
    entry = files.entries.get(name)
    if entry is None:
        raise CheckpointError(f"The weights lack the tensor {name}. {REPAIR}")
    if entry.shape != (count,) or entry.type not in FLOATING:
        raise CheckpointError(
            f"{name} has the shape {list(entry.shape)} in {TYPES[entry.type].name} where {count} numbers are needed. "
            f"{REPAIR}"
        )
    values = files.floating(name).double()
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        raise CheckpointError(f"{name} holds values that no frequency can be divided by. {REPAIR}")
    stored: list[float] = values.tolist()
    return stored

"""Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024): Llama with fused projections, LongRoPE, partly rotated heads (4-mini).

LongRoPE's two sets of factors are chosen as transformers does, by a sequence's length
(engine/compute/layers/longrope.py). Keys that are cached on one side of the original context are of no use on the
other, and Kvasir does not compute them anew: ``max_position`` is therefore the original context, within which every
logit is that of transformers. Who asks for a longer one when loading gets the long factors for all texts (as in
llama.cpp and vLLM).
"""

from __future__ import annotations

from typing import Any

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.positions import RopeConfig
from engine.config.raw import RawConfig, is_number


def read_config(raw: RawConfig) -> ModelConfig:
    """No biases; one window for all layers where the file has one."""
    window = raw.optional_integer("sliding_window")
    config = read_decoder(
        raw,
        eps=1e-5,
        rope=_rope(raw),
        max_position=raw.integer("max_position_embeddings", 4096),
        windows=(window,) * raw.integer("num_hidden_layers", most=10_000),
        fused_qkv=True,
        fused_mlp=True,
    )
    positions, head_dim = config.positions, config.attention.head_dim
    rope, width = positions.rope, positions.rope.width(head_dim)
    if width < 2 or width % 2:
        raise raw.wrong(f"{width} of {head_dim} dimensions of a head rotate, and rotary embedding needs pairs")
    if rope.kind != "longrope":
        return config
    for name, factors in (("short_factor", rope.factors), ("long_factor", rope.long_factors)):
        if len(factors) != width // 2:
            raise raw.wrong(f'"{name}" has {len(factors)} numbers where {width // 2} are needed')
    original = min(positions.max_position, rope.original_max_position)
    return config.changed(max_position=original, longer_position=positions.max_position)


def _rope(raw: RawConfig) -> RopeConfig:
    """Older files say "su" or "yarn" for LongRoPE."""
    values = raw.rope_values()
    if (values.get("rope_type") or values.get("type")) not in ("longrope", "su", "yarn"):
        return raw.rope(partial=1.0)
    within = RawConfig(raw.values | values, raw.file)
    original = within.integer("original_max_position_embeddings", 4096)
    original = raw.integer("original_max_position_embeddings", original, least=2)
    extension = raw.integer("max_position_embeddings", 4096) / original
    return RopeConfig(
        theta=within.positive("rope_theta", 10000.0),
        kind="longrope",
        factor=within.positive("factor", extension),
        original_max_position=original,
        attention_factor=None if values.get("attention_factor") is None else within.positive("attention_factor", 1.0),
        factors=_factors(raw, values, "short_factor"),
        long_factors=_factors(raw, values, "long_factor"),
        partial=raw.rotary_share(values),
    )


def _factors(raw: RawConfig, values: dict[str, Any], name: str) -> tuple[float, ...]:
    stated = values.get(name)
    if not isinstance(stated, list) or not all(is_number(value) and value > 0 for value in stated):
        raise raw.wrong(f'its rope scaling has no "{name}" of positive numbers')
    return tuple(map(float, stated))


Model = Decoder

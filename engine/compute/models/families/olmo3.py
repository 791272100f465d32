"""OLMo 3 (OLMo Team 2025): OLMo 2 with a window in three of four layers, whose rotation is not scaled."""

from __future__ import annotations

from engine.compute.models.families import gemma2, olmo2
from engine.config.model import ModelConfig
from engine.config.positions import RopeConfig
from engine.config.raw import RawConfig

THETA = 500_000.0
"""The base of rotations where the file is silent."""


def read_config(raw: RawConfig) -> ModelConfig:
    """Every 4th layer sees all tokens where the file has no ``layer_types``."""
    config, window = olmo2.read_config(raw), raw.optional_integer("sliding_window", 4096)
    local = gemma2.local_layers(raw, config.num_layers, pattern=4)
    return config.changed(
        windows=tuple(window if narrow else None for narrow in local),
        local=local,
        rope=raw.rope(THETA, "full_attention"),
        local_rope=_local_rope(raw),
    )


def _local_rope(raw: RawConfig) -> RopeConfig:
    """Older files' ``rope_scaling`` belongs to the other layers."""
    parameters = raw.values.get("rope_parameters")
    if isinstance(parameters, dict) and parameters.get("sliding_attention") is not None:
        return raw.rope(THETA, "sliding_attention")
    return RopeConfig(raw.positive("rope_theta", THETA))


Model = olmo2.Model

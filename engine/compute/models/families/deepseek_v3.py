"""DeepSeek-V3 (2024, arXiv 2412.19437) and its kin: V2 whose experts' shares are sigmoids, with a bias for the choice.

GLM-4.7-Flash (Z.ai 2026) has this shape. What is said here of its experts holds of GLM-4.5 too.
"""

from __future__ import annotations

from engine.compute.models.common import read_moe
from engine.compute.models.families import deepseek_v2
from engine.config.feed_forward import MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Same as :func:`deepseek_v2.read_config`, with :func:`read_experts`. Raises :class:`CheckpointError`."""
    if not raw.flag("rope_interleave", True):
        raise raw.wrong("it rotates halves of heads, which this family does not do in Kvasir")
    return deepseek_v2.read_latent(raw, read_experts)


def read_experts(raw: RawConfig) -> MoEConfig | None:
    """None where no layer has any. ``mlp_layer_types`` says which have; without it, all but the first."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    types = raw.layer_types(layers, ("dense", "sparse"), key="mlp_layer_types")
    if types is None:
        first = raw.integer("first_k_dense_replace", 1 if "Lite" in raw.architecture else 3, least=0)
        types = ["dense" if index < first else "sparse" for index in range(layers)]
    if "sparse" not in types:
        return None
    groups, inner = raw.optional_integer("n_group", 1) or 1, raw.integer("moe_intermediate_size")
    count = raw.integer("n_routed_experts")
    if groups > 1 and count < 2 * groups:
        raise raw.wrong(f"{groups} groups of {count} experts have no two best ones each")
    return read_moe(
        raw,
        count="n_routed_experts",
        per_token=None,
        intermediate_size=inner,
        sparse=tuple(kind == "sparse" for kind in types),
        routing="sigmoid",
        choice_bias=True,
        normalised=raw.flag("norm_topk_prob", True),
        share_scale=raw.positive("routed_scaling_factor", 1.0),
        groups=groups,
        groups_per_token=raw.optional_integer("topk_group", 1) or 1 if groups > 1 else 1,
        shared_size=inner * (raw.optional_integer("n_shared_experts", 1) or 0),
    )


Model = deepseek_v2.Model

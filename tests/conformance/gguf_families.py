"""Tiny random models of the families that GGUF knows, and what llama.cpp's converter says of them in metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from tests.conformance.gguf_models import VOCABULARY

LAYERS = 3
BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
Keys = dict[str, Any]


class Family(NamedTuple):
    """``keys(config)`` are what the converter writes for this architecture beside what it writes for all."""

    architecture: str
    model: str
    keys: Callable[[Any], Keys]

    def config(self, **options: Any) -> Any:
        name = f"{self.model}Text" if self.model in ("Gemma3", "Gemma4", "Qwen3_5", "Qwen3_5Moe") else self.model
        return getattr(transformers, f"{name}Config")(**(BASE | options), attn_implementation="eager")


def _theta(config: Any) -> float:
    ropes = config.rope_parameters
    return float(ropes.get("full_attention", ropes)["rope_theta"])


def _scaling(config: Any) -> Keys:
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    keys: Keys = {"rope.freq_base": _theta(config)}
    if rope["rope_type"] in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    if rope["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return keys


def _heads(config: Any) -> Keys:
    return {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}


def _gemma2(config: Any) -> Keys:
    return _heads(config) | {
        "attn_logit_softcapping": config.attn_logit_softcapping,
        "final_logit_softcapping": config.final_logit_softcapping,
        "attention.sliding_window": config.sliding_window,
    }


def _gemma3(config: Any) -> Keys:
    keys = _heads(config) | _scaling(config)
    local = config.rope_parameters["sliding_attention"]["rope_theta"]
    keys |= {"rope.freq_base_swa": float(local)} if local != 10000 else {}
    if config.final_logit_softcapping:
        keys["final_logit_softcapping"] = config.final_logit_softcapping
    return keys | ({"attention.sliding_window": config.sliding_window} if config.sliding_window else {})


def _gemma4(config: Any) -> Keys:
    local = [kind == "sliding_attention" for kind in config.layer_types]
    wide, layers = config.per_layer_config[local.index(False)], config.num_hidden_layers
    shared, inner = config.num_kv_shared_layers, config.intermediate_size
    heads = [config.num_key_value_heads if here else wide.num_key_value_heads for here in local]
    keys: Keys = {
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
        "attention.sliding_window": config.sliding_window,
        "attention.sliding_window_pattern": local,
        "attention.key_length": wide.head_dim,
        "attention.value_length": wide.head_dim,
        "attention.key_length_swa": config.head_dim,
        "attention.value_length_swa": config.head_dim,
        "attention.head_count_kv": heads,
        "rope.dimension_count": wide.head_dim,
        "rope.dimension_count_swa": config.head_dim,
        "rope.freq_base": float(config.rope_parameters["full_attention"]["rope_theta"]),
        "rope.freq_base_swa": float(config.rope_parameters["sliding_attention"]["rope_theta"]),
        "final_logit_softcapping": config.final_logit_softcapping,
    }
    if config.use_double_wide_mlp:
        keys["feed_forward_length"] = [inner * (1 + (index >= layers - shared)) for index in range(layers)]
    if config.enable_moe_block:
        keys |= {
            "expert_count": config.num_experts,
            "expert_used_count": config.top_k_experts,
            "expert_feed_forward_length": config.moe_intermediate_size,
        }
    return keys


def _phi3(config: Any) -> Keys:
    rope = config.rope_parameters
    part = rope.get("partial_rotary_factor", 1.0)
    keys: Keys = {
        "rope.scaling.original_context_length": config.original_max_position_embeddings,
        "rope.dimension_count": int(part * config.hidden_size) // config.num_attention_heads,
        "rope.freq_base": _theta(config),
        "attention.sliding_window": config.sliding_window or 0,
    }
    if "long_factor" in rope:
        scale = config.max_position_embeddings / config.original_max_position_embeddings
        factor = float(np.sqrt(1 + np.log(scale) / np.log(config.original_max_position_embeddings)))
        keys["rope.scaling.attn_factor"] = factor
    return keys


def _llama(config: Any) -> Keys:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return _scaling(config) | {"vocab_size": config.vocab_size, "rope.dimension_count": size}


def _granite(config: Any) -> Keys:
    return _llama(config) | {
        "attention.scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": config.logits_scaling,
    }


def _states(config: Any, heads: int, width: int, groups: int, state: int, kernel: int) -> Keys:
    return {
        "ssm.conv_kernel": kernel,
        "ssm.state_size": state,
        "ssm.group_count": groups,
        "ssm.inner_size": heads * width,
        "ssm.time_step_rank": heads,
        "attention.head_count_kv": [
            config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types
        ],
    }


def _granite_hybrid(config: Any) -> Keys:
    sizes = (config.mamba_n_heads, config.mamba_d_head, config.mamba_n_groups, config.mamba_d_state)
    return (
        _granite(config)
        | _experts(config)
        | _states(config, *sizes, config.mamba_d_conv)
        | {
            "expert_shared_feed_forward_length": config.shared_intermediate_size,
            "rope.scaling.finetuned": config.position_embedding_type == "rope",
        }
    )


def _nemotron_h(config: Any) -> Keys:
    """The width of what would rotate is that of heads without a width of their own."""
    sizes = (config.mamba_num_heads, config.mamba_head_dim, config.n_groups, config.ssm_state_size)
    return (
        _heads(config)
        | _states(config, *sizes, config.conv_kernel)
        | {
            "rope.dimension_count": config.hidden_size // config.num_attention_heads,
            "rope.scaling.finetuned": False,
            "attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
            "feed_forward_length": [
                config.intermediate_size if kind == "mlp" else 0 for kind in config.layers_block_type
            ],
        }
    )


def _nemotron_h_moe(config: Any) -> Keys:
    inner = config.moe_intermediate_size
    return _nemotron_h(config) | {
        "attention.layer_norm_rms_epsilon": None,
        "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        "feed_forward_length": [inner if kind == "moe" else 0 for kind in config.layers_block_type],
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": inner,
        "expert_shared_feed_forward_length": config.moe_shared_expert_intermediate_size,
        "expert_count": config.n_routed_experts,
        "expert_shared_count": config.n_shared_experts,
        "expert_weights_norm": config.norm_topk_prob,
        "expert_weights_scale": float(config.routed_scaling_factor),
        "expert_group_count": config.n_group,
        "moe_latent_size": config.moe_latent_size,
    }


def _experts(config: Any) -> Keys:
    return {"expert_count": config.num_local_experts, "expert_used_count": config.num_experts_per_tok}


def _mixtral(config: Any) -> Keys:
    return _llama(config) | _experts(config)


def _qwen3moe(config: Any) -> Keys:
    size = {"expert_feed_forward_length": config.moe_intermediate_size}
    return _scaling(config) | _heads(config) | _experts(config) | size


def _deepseek2(config: Any) -> Keys:
    """With keys and values absorbed; older files have other values of some keys."""
    keys = _scaling(config) | {
        "vocab_size": config.vocab_size,
        "attention.head_count_kv": 1,
        "attention.kv_lora_rank": config.kv_lora_rank,
        "attention.key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "attention.value_length": config.kv_lora_rank,
        "attention.key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length_mla": config.v_head_dim,
        "rope.dimension_count": config.qk_rope_head_dim,
        "leading_dense_block_count": config.first_k_dense_replace,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_count": config.n_shared_experts,
        "expert_count": config.n_routed_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_weights_scale": float(config.routed_scaling_factor),
    }
    if config.n_group is not None:
        keys |= {"expert_group_count": config.n_group, "expert_group_used_count": config.topk_group}
    if config.q_lora_rank is not None:
        keys["attention.q_lora_rank"] = config.q_lora_rank
    if "mscale_all_dim" in config.rope_parameters:
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * config.rope_parameters["mscale_all_dim"]
    return keys


def _deepseek3(config: Any) -> Keys:
    return _deepseek2(config) | {"expert_gating_func": 2, "expert_weights_norm": config.norm_topk_prob}


def _kimi_linear(config: Any) -> Keys:
    """Without what says how shares are made."""
    return {
        "vocab_size": config.vocab_size,
        "attention.head_count_kv": [int(kind == "full_attention") for kind in config.layer_types],
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "kda.head_dim": config.linear_head_dim,
        "attention.q_lora_rank": config.q_lora_rank,
        "attention.kv_lora_rank": config.kv_lora_rank,
        "rope.dimension_count": config.qk_rope_head_dim,
        "attention.key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "attention.key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length_mla": config.v_head_dim,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_count": config.n_shared_experts,
        "leading_dense_block_count": config.mlp_layer_types.count("dense"),
        "expert_weights_scale": float(config.routed_scaling_factor),
        "expert_count": config.num_local_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_gating_func": 2,
    }


def _glm4moe(config: Any) -> Keys:
    rotated = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 0.5))
    return (
        _scaling(config)
        | _heads(config)
        | {
            "rope.dimension_count": rotated,
            "expert_count": config.n_routed_experts,
            "expert_used_count": config.num_experts_per_tok,
            "expert_feed_forward_length": config.moe_intermediate_size,
            "expert_shared_count": config.n_shared_experts,
            "expert_group_count": config.n_group,
            "expert_group_used_count": config.topk_group,
            "leading_dense_block_count": config.first_k_dense_replace,
            "expert_gating_func": 2,
            "expert_weights_scale": float(config.routed_scaling_factor),
            "expert_weights_norm": config.norm_topk_prob,
        }
    )


def _mistral3(config: Any) -> Keys:
    rope = config.rope_parameters
    return (
        _llama(config)
        | _heads(config)
        | _scaling(config)
        | {
            "rope.scaling.yarn_log_multiplier": rope["mscale_all_dim"],
            "attention.temperature_scale": rope["llama_4_scaling_beta"],
        }
    )


def _lfm2(config: Any) -> Keys:
    rotated, heads = config.hidden_size // config.num_attention_heads, config.num_key_value_heads
    return {
        "rope.freq_base": _theta(config),
        "rope.dimension_count": rotated,
        "attention.head_count_kv": [heads if kind == "full_attention" else 0 for kind in config.layer_types],
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "shortconv.l_cache": config.conv_L_cache,
    }


def _lfm2moe(config: Any) -> Keys:
    return _lfm2(config) | {
        "expert_count": config.num_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "leading_dense_block_count": config.num_dense_layers,
        "expert_gating_func": 2,
    }


def unabsorbed(config: Any) -> Keys:
    """As files of deepseek2 were before 2025-04."""
    return {
        "attention.head_count_kv": config.num_attention_heads,
        "attention.key_length": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length": config.v_head_dim,
        "attention.key_length_mla": None,
        "attention.value_length_mla": None,
    }


def _gpt_oss(config: Any) -> Keys:
    return (
        _scaling(config)
        | _heads(config)
        | _experts(config)
        | {
            "attention.sliding_window": config.sliding_window,
            "expert_feed_forward_length": config.intermediate_size,
        }
    )


def _qwen35(config: Any) -> Keys:
    rope = config.rope_parameters
    keys = _heads(config) | {
        "rope.freq_base": _theta(config),
        "rope.dimension_count": int(config.head_dim * rope.get("partial_rotary_factor", 0.25)),
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads,
        "ssm.time_step_rank": config.linear_num_value_heads,
        "ssm.inner_size": config.linear_value_head_dim * config.linear_num_value_heads,
        "full_attention_interval": 4,
        "rope.dimension_sections": [11, 11, 10, 0],
    }
    if config.layer_types != [
        ("full" if i % 4 == 3 else "linear") + "_attention" for i in range(len(config.layer_types))
    ]:
        keys["attention.recurrent_layers"] = [kind == "linear_attention" for kind in config.layer_types]
    return keys


def _qwen35moe(config: Any) -> Keys:
    return _qwen35(config) | {
        "feed_forward_length": None,
        "expert_count": config.num_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_feed_forward_length": config.shared_expert_intermediate_size,
    }


def _olmo3(config: Any) -> Keys:
    return _scaling(config) | {
        "attention.sliding_window": config.sliding_window,
        "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types],
    }


def _plain(config: Any) -> Keys:
    return _scaling(config) | _heads(config)


def _ernie_moe(config: Any) -> Keys:
    inner, shared = config.moe_intermediate_size, config.moe_num_shared_experts
    return _scaling(config) | {
        "expert_count": config.moe_num_experts,
        "expert_used_count": config.moe_k,
        "interleave_moe_layer_step": config.moe_layer_interval,
        "leading_dense_block_count": config.moe_layer_start_index,
        "expert_feed_forward_length": inner,
        "expert_shared_count": shared,
        "expert_shared_feed_forward_length": inner * shared,
    }


FAMILIES = {
    family.architecture: family
    for family in (
        Family("gemma2", "Gemma2", _gemma2),
        Family("gemma3", "Gemma3", _gemma3),
        Family("gemma4", "Gemma4", _gemma4),
        Family("phi3", "Phi3", _phi3),
        Family("olmo2", "Olmo2", _scaling),
        Family("seed_oss", "SeedOss", _plain),
        Family("ernie4_5", "Ernie4_5", _plain),
        Family("ernie4_5-moe", "Ernie4_5_Moe", _ernie_moe),
        Family("granite", "Granite", _granite),
        Family("granitehybrid", "GraniteMoeHybrid", _granite_hybrid),
        Family("nemotron_h", "NemotronH", _nemotron_h),
        Family("smollm3", "SmolLM3", _llama),
        Family("llama", "Mixtral", _mixtral),
        Family("qwen3moe", "Qwen3Moe", _qwen3moe),
        Family("qwen35", "Qwen3_5", _qwen35),
        Family("qwen35moe", "Qwen3_5Moe", _qwen35moe),
        Family("gpt-oss", "GptOss", _gpt_oss),
        Family("deepseek2", "DeepseekV2", _deepseek2),
        Family("kimi-linear", "KimiLinear", _kimi_linear),
        Family("glm4moe", "Glm4Moe", _glm4moe),
        Family("mistral3", "Ministral3", _mistral3),
        Family("lfm2", "Lfm2", _lfm2),
        Family("lfm2moe", "Lfm2Moe", _lfm2moe),
    )
} | {
    "olmo3": Family("olmo2", "Olmo3", _olmo3),
    "deepseek3": Family("deepseek2", "DeepseekV3", _deepseek3),
    "nemotron_h_moe": Family("nemotron_h_moe", "NemotronH", _nemotron_h_moe),
}
"""By architecture, but for those that have two families."""


def family_of(model: transformers.PreTrainedModel) -> Family:
    """Of two architectures the one with experts comes first where the model has some."""
    found = [family for family in FAMILIES.values() if type(model).__name__ == f"{family.model}ForCausalLM"]
    experts = any(".experts." in name for name, _ in model.named_parameters())
    return found[-1] if experts else found[0]


OFFSET = ("gemma2", "gemma3", "qwen35")
"""Whose norms multiply by 1 + weight, which the converter adds."""


def random_model(architecture: str, seed: int = 0, **options: Any) -> transformers.PreTrainedModel:
    """A model in float32 whose every parameter matters."""
    family = FAMILIES[architecture]
    model = getattr(transformers, f"{family.model}ForCausalLM")(family.config(**options)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.rsplit(".", 2)[-2] or name.endswith(("router.scale", "per_expert_scale")):
                offset = 1.0 if architecture.startswith(OFFSET) and "linear_attn" not in name else 0.0
                parameter.uniform_(0.5 - offset, 1.5 - offset, generator=generator)
            else:
                size = 1.5 if name.endswith("sinks") else 0.3 if name.endswith("bias") else 0.15
                parameter.normal_(0, size, generator=generator)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.uniform_(0.5, 1.0, generator=generator)
            elif name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.uniform_(-0.2, 0.2, generator=generator)
    return model


def rope_of(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **values}}


GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "attn_logit_softcapping": 3.0,
         "final_logit_softcapping": 2.0, "tie_word_embeddings": True}  # fmt: skip
GEMMA3 = GEMMA | {"num_hidden_layers": 7, "attn_logit_softcapping": None, "final_logit_softcapping": None}
GEMMA3_SCALED = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
GEMMA4 = {"num_hidden_layers": 6, "layer_types": ["sliding_attention", "full_attention"] * 3, "head_dim": 16,
          "global_head_dim": 32, "sliding_window": 8, "hidden_size_per_layer_input": 0, "tie_word_embeddings": True,
          "vocab_size_per_layer_input": VOCABULARY, "final_logit_softcapping": 30.0}  # fmt: skip
"""Without a cap llama.cpp takes 30."""
GEMMA4_E = GEMMA4 | {"hidden_size_per_layer_input": 32, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
                     "final_logit_softcapping": 2.0}  # fmt: skip
GEMMA4_MOE = GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True,
                       "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 32}  # fmt: skip
GRANITE = {"embedding_multiplier": 6.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 3.0}
LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], "long_factor": [2.0 + 3 * i for i in range(8)]}
LONGROPE = rope_of("longrope", **LONG) | {"original_max_position_embeddings": 256, "max_position_embeddings": 1024}
PARTIAL = {key: values[:6] for key, values in LONG.items()} | {"partial_rotary_factor": 0.75}
EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 2}
QWEN3_MOE = {"num_local_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "head_dim": 16,
             "norm_topk_prob": True}  # fmt: skip
GPT_OSS = EXPERTS | {"head_dim": 16, "sliding_window": 8}
DEEPSEEK = {"rms_norm_eps": 1e-6, "num_key_value_heads": 4, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16, "v_head_dim": 32, "q_lora_rank": 32, "first_k_dense_replace": 1, "n_group": 1,
            "topk_group": 1, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
            "moe_intermediate_size": 32, "routed_scaling_factor": 2.5}  # fmt: skip
GROUPS = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
SIGMOID = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "moe_intermediate_size": 32,
           "routed_scaling_factor": 2.5, "norm_topk_prob": True, "n_group": 1, "topk_group": 1}  # fmt: skip
DEEPSEEK3 = DEEPSEEK | SIGMOID | {"n_group": 4, "topk_group": 2}
GLM4_MOE = SIGMOID | {"head_dim": 32, "first_k_dense_replace": 1, "attention_bias": True, "use_qk_norm": True}
MINISTRAL = rope_of("yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0,
                    llama_4_scaling_beta=0.5) | {"head_dim": 32}  # fmt: skip
LFM2 = {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"],
        "block_auto_adjust_ff_dim": False, "tie_word_embeddings": True}  # fmt: skip
LFM2_MOE = {"num_hidden_layers": 4, "layer_types": LFM2["layer_types"], "num_dense_layers": 1, "num_experts": 6,
            "num_experts_per_tok": 2, "moe_intermediate_size": 32, "tie_word_embeddings": True}  # fmt: skip
MLA_YARN = rope_of("yarn", factor=4.0, original_max_position_embeddings=64, mscale=0.707, mscale_all_dim=0.707)
QWEN35 = {"num_hidden_layers": 4, "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "linear_key_head_dim": 32, "linear_value_head_dim": 32}  # fmt: skip
"""ggml's operator wants keys and values of one width."""
QWEN35MOE = QWEN35 | {"num_experts": 6, "num_experts_per_tok": 3,
             "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64}  # fmt: skip
GRANITE_HYBRID = GRANITE | {
    "num_hidden_layers": 4, "layer_types": ["mamba", "mamba", "attention", "mamba"], "mamba_n_heads": 8,
    "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 32, "shared_intermediate_size": 96,
    "num_local_experts": 0}  # fmt: skip
"""llama.cpp wants heads that share twice the hidden size, and one inner size of a model without experts."""
GRANITE_HYBRID_MOE = GRANITE_HYBRID | {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32}
NEMOTRON_H = {"hybrid_override_pattern": "M-M*-", "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 4,
              "ssm_state_size": 32, "head_dim": 32}  # fmt: skip
NEMOTRON_H_MOE = NEMOTRON_H | {"hybrid_override_pattern": "MEM*E", "n_routed_experts": 6, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 96,
                  "routed_scaling_factor": 2.5}  # fmt: skip
KIMI = {key: DEEPSEEK[key] for key in DEEPSEEK if not key.startswith(("first_k", "n_routed"))} | {
    "num_hidden_layers": 4, "q_lora_rank": None, "num_local_experts": 8, "linear_num_heads": 4, "linear_head_dim": 32,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"]}  # fmt: skip
OLMO3 = {"num_hidden_layers": 4, "sliding_window": 8}
ERNIE_MOE = {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "kimi-linear": KIMI, "olmo3": OLMO3, "seed_oss": {"head_dim": 32},
    "ernie4_5": {"head_dim": 32}, "ernie4_5-moe": ERNIE_MOE,
    "granitehybrid": GRANITE_HYBRID_MOE, "nemotron_h": NEMOTRON_H, "nemotron_h_moe": NEMOTRON_H_MOE,
    "gemma2": GEMMA, "gemma3": GEMMA3, "gemma4": GEMMA4_E,
    "phi3": LONGROPE, "granite": GRANITE, "llama": EXPERTS, "qwen3moe": QWEN3_MOE,
    "lfm2": LFM2, "lfm2moe": LFM2_MOE, "deepseek3": DEEPSEEK3, "glm4moe": GLM4_MOE, "mistral3": MINISTRAL,
    "qwen35": QWEN35, "qwen35moe": QWEN35MOE, "gpt-oss": GPT_OSS, "deepseek2": DEEPSEEK, "olmo2": {}, "smollm3": {},
}  # fmt: skip
"""What shows what sets each apart."""

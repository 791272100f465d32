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
        name = "Gemma3Text" if self.model == "Gemma3" else self.model
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


FAMILIES = {
    family.architecture: family
    for family in (
        Family("gemma2", "Gemma2", _gemma2),
        Family("gemma3", "Gemma3", _gemma3),
        Family("phi3", "Phi3", _phi3),
        Family("olmo2", "Olmo2", _scaling),
        Family("granite", "Granite", _granite),
        Family("smollm3", "SmolLM3", _llama),
        Family("llama", "Mixtral", _mixtral),
        Family("qwen3moe", "Qwen3Moe", _qwen3moe),
        Family("gpt-oss", "GptOss", _gpt_oss),
        Family("deepseek2", "DeepseekV2", _deepseek2),
    )
}


def random_model(architecture: str, seed: int = 0, **options: Any) -> transformers.PreTrainedModel:
    """A model in float32 whose every parameter matters."""
    family = FAMILIES[architecture]
    model = getattr(transformers, f"{family.model}ForCausalLM")(family.config(**options)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                offset = 1.0 if architecture.startswith("gemma") else 0.0
                parameter.uniform_(0.5 - offset, 1.5 - offset, generator=generator)
            else:
                size = 1.5 if name.endswith("sinks") else 0.3 if name.endswith("bias") else 0.15
                parameter.normal_(0, size, generator=generator)
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
MLA_YARN = rope_of("yarn", factor=4.0, original_max_position_embeddings=64, mscale=0.707, mscale_all_dim=0.707)
OPTIONS: dict[str, dict[str, Any]] = {
    "gemma2": GEMMA, "gemma3": GEMMA3, "phi3": LONGROPE, "granite": GRANITE, "llama": EXPERTS, "qwen3moe": QWEN3_MOE,
    "gpt-oss": GPT_OSS, "deepseek2": DEEPSEEK, "olmo2": {}, "smollm3": {},
}  # fmt: skip
"""What shows what sets each apart."""

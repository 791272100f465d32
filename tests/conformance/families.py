"""Tiny random checkpoints of every family, and what transformers says of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

TOLERANCE = 1e-4
LENGTHS = (1, 5, 17, 40)
VOCABULARY = 160
BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Case:
    name: str
    family: str
    options: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    shard: str = "1GB"
    seed: int = 0
    """Another one where the random model says the same token for ever."""


def rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **values}}


def longrope(pairs: int, **values: Any) -> dict[str, Any]:
    """Factors that differ from pair to pair, and from short to long."""
    short, long = [1.0 + 0.1 * pair for pair in range(pairs)], [2.0 + 3.0 * pair for pair in range(pairs)]
    return rope("longrope", short_factor=short, long_factor=long, **values)


GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 8, "attn_logit_softcapping": 50.0,
         "final_logit_softcapping": 30.0, "tie_word_embeddings": True}  # fmt: skip
GEMMA4_TYPES = ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
                "full_attention"]  # fmt: skip
GEMMA4 = {"num_hidden_layers": 6, "layer_types": GEMMA4_TYPES, "head_dim": 16, "global_head_dim": 32,
          "sliding_window": 8, "hidden_size_per_layer_input": 0, "tie_word_embeddings": True,
          "vocab_size_per_layer_input": 160}  # fmt: skip
GEMMA4_E = GEMMA4 | {"hidden_size_per_layer_input": 12, "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
                     "final_logit_softcapping": 30.0}  # fmt: skip
GEMMA4_WIDE = GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
GEMMA4_MOE = GEMMA4_WIDE | {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
                            "moe_intermediate_size": 40}  # fmt: skip
GRANITE = {"embedding_multiplier": 6.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 3.0}
EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 2}
QWEN3_MOE = EXPERTS | {"moe_intermediate_size": 40, "head_dim": 16, "num_experts_per_tok": 3}
GPT_OSS = EXPERTS | {"head_dim": 16, "sliding_window": 8}
QWEN3_5 = {"num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
           "linear_key_head_dim": 16, "linear_value_head_dim": 16}  # fmt: skip
QWEN3_5_MOE = QWEN3_5 | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
                         "shared_expert_intermediate_size": 24}  # fmt: skip
LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
MLA = {"num_key_value_heads": 4, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
       "q_lora_rank": None, "first_k_dense_replace": 3}  # fmt: skip
DEEPSEEK = MLA | {"first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
                  "moe_intermediate_size": 40, "routed_scaling_factor": 2.5}  # fmt: skip
GROUPS = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3}
SIGMOID = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "moe_intermediate_size": 40,
           "routed_scaling_factor": 1.8, "norm_topk_prob": True}  # fmt: skip
GLM_LITE = {key: MLA[key] for key in MLA if key != "first_k_dense_replace"} | SIGMOID
MINISTRAL = rope("yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0,
                  llama_4_scaling_beta=0.5) | {"head_dim": 16}  # fmt: skip
LFM2 = {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"], "block_multiple_of": 16}
LFM2_MOE = {"num_hidden_layers": 4, "layer_types": LFM2["layer_types"], "num_dense_layers": 1, "num_experts": 6,
            "num_experts_per_tok": 2, "moe_intermediate_size": 40}  # fmt: skip
MLA_YARN = rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=0.707, mscale_all_dim=0.707)
GRANITE_HYBRID = GRANITE | {"num_hidden_layers": 4, "layer_types": ["mamba", "mamba", "attention", "mamba"],
                            "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 12,
                            "shared_intermediate_size": 72, "num_local_experts": 0}  # fmt: skip
GRANITE_EXPERTS = GRANITE_HYBRID | {"num_local_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 40}
NEMOTRON = {"hybrid_override_pattern": "M-M*-", "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 3,
            "ssm_state_size": 20, "head_dim": 16}  # fmt: skip
NEMOTRON_EXPERTS = NEMOTRON | {"hybrid_override_pattern": "MEM*E-", "n_routed_experts": 8, "num_experts_per_tok": 3,
                               "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 56,
                               "routed_scaling_factor": 2.5}  # fmt: skip
OLMO_HYBRID = {"num_hidden_layers": 4, "linear_num_key_heads": 3, "linear_num_value_heads": 3,
               "linear_key_head_dim": 16, "linear_value_head_dim": 32}  # fmt: skip
KIMI = {
    key: value for key, value in (MLA | SIGMOID).items() if key not in ("first_k_dense_replace", "n_routed_experts")
}
KIMI |= {"num_local_experts": 8, "num_hidden_layers": 4, "linear_num_heads": 3, "linear_head_dim": 16,
         "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"]}  # fmt: skip
QWEN3_NEXT = QWEN3_5_MOE | {"num_experts": 6, "linear_num_value_heads": 6, "decoder_sparse_step": 1}
TYPES = {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8}
TWO_ROPES = {"rope_parameters": {
    "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "partial_rotary_factor": 0.5,
                       "original_max_position_embeddings": 64},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}  # fmt: skip
ERNIE = {"head_dim": 16, "use_bias": False}
ERNIE_MOE = {"moe_num_experts": 6, "moe_k": 3, "moe_intermediate_size": 40, "moe_num_shared_experts": 2}
MELLUM = TYPES | {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
LAGUNA = TYPES | {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
                  "shared_expert_intermediate_size": 24, "num_attention_heads_per_layer": [2, 6, 4, 2],
                  "moe_routed_scaling_factor": 2.5}  # fmt: skip
LFM3 = {"num_hidden_layers": 5, "head_dim": 16, "sliding_window": 8,
        "layer_types": ["conv", "sliding_attention", "full_attention", "conv", "sliding_attention"]}  # fmt: skip


def make(case: Case, folder: Path) -> transformers.PreTrainedModel:
    """Save a random checkpoint whose every parameter matters, and return transformers' model of the weights in it."""
    torch.manual_seed(sum(case.name.encode()) + case.seed)
    options = BASE | case.options
    if case.family == "OPT":
        options = {key: options[key] for key in options if key not in ("intermediate_size", "num_key_value_heads")}
    if case.family == "NemotronH":
        del options["num_hidden_layers"]
    config = getattr(transformers, f"{case.family}Config")(**options)
    kind = getattr(transformers, f"{case.family.removesuffix('Text')}ForCausalLM")
    model = kind(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.rsplit(".", 2)[-2] or "router.scale" in name or "per_expert_scale" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 1.5 if name.endswith("sinks") else 0.3 if name.endswith("bias") else 0.15)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.uniform_(0.5, 1.0)
            elif name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.uniform_(-0.2, 0.2)
        for value in model.state_dict().values():
            value.copy_(value.to(case.dtype))
    copy.deepcopy(model).to(case.dtype).save_pretrained(folder, max_shard_size=case.shard)
    if case.family == "OlmoHybrid":
        cut_by_their_widths(folder, config)
    model.set_attn_implementation("eager")
    return model.eval()


def cut_by_their_widths(folder: Path, config: Any) -> None:
    """transformers cuts the convolutions of queries, keys and values into equal parts, whatever their widths are."""
    file = folder / "model.safetensors"
    tensors, keys = load_file(file), config.linear_num_key_heads * config.linear_key_head_dim
    for first in [name for name in tensors if name.endswith("q_conv1d.weight")]:
        names = [first.replace("q_conv1d", f"{part}_conv1d") for part in "qkv"]
        whole = torch.cat([tensors[name] for name in names])
        parts = whole.split((keys, keys, len(whole) - 2 * keys))
        tensors |= {name: part.clone() for name, part in zip(names, parts, strict=True)}
    save_file(tensors, file, {"format": "pt"})


@torch.inference_mode()
def theirs(model: transformers.PreTrainedModel, prompt: list[int]) -> Tensor:
    return model(torch.tensor([prompt])).logits[0]


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in LENGTHS]

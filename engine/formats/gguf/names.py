"""GGUF's names for the modules whose names families know from Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_OUTER = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
"""Experts are stacked: one tensor ``[experts, rows, columns]`` for each of their modules..."""
UP, GATE_UP = "ffn_up_exps", "ffn_gate_up_exps"
"""... or one for gate and up."""
STACKED = "_exps"
"""Ends their names. Before 2024-04 each was a tensor of its own: ``blk.3.ffn_up.7`` and not ``blk.3.ffn_up_exps``."""
MIXTRAL = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
}
_SHARED = {
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
DEEPSEEK2 = {
    **EXPERTS,
    **_SHARED,
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}
KIMI_LINEAR = DEEPSEEK2 | {
    "self_attn.q_conv1d": "ssm_conv1d_q",
    "self_attn.k_conv1d": "ssm_conv1d_k",
    "self_attn.v_conv1d": "ssm_conv1d_v",
    "self_attn.f_a_proj": "ssm_f_a",
    "self_attn.f_b_proj": "ssm_f_b",
    "self_attn.b_proj": "ssm_beta",
    "self_attn.g_a_proj": "ssm_g_a",
    "self_attn.g_b_proj": "ssm_g_b",
    "self_attn.o_norm": "ssm_norm",
    "self_attn.A_log": "ssm_a",
    "self_attn.dt_bias": "ssm_dt.bias",
}
GLM4_MOE = DEEPSEEK2 | {"post_attention_layernorm": "post_attention_norm"}
KV_UP, K_UP, V_UP = "attn_kv_b", "attn_k_b", "attn_v_b"
"""Latent attention's projection up to keys and values ``[heads * (nope + value), rank]``: the whole, or its two parts
``[heads, rank, nope]`` and ``[heads, value, rank]``."""
GPT_OSS = EXPERTS | {
    "mlp.router": "ffn_gate_inp",
    "self_attn.sinks": "attn_sinks",
    "post_attention_layernorm": "post_attention_norm",
}
QWEN35 = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
}
"""Names of a model with states. ``ssm_a`` holds -e^A_log."""
QWEN35MOE = (
    QWEN35
    | EXPERTS
    | {
        "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
        "mlp.shared_expert.up_proj": "ffn_up_shexp",
        "mlp.shared_expert.down_proj": "ffn_down_shexp",
        "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    }
)
NEXT = {
    "mtp.fc": "nextn.eh_proj",
    "mtp.pre_fc_norm_embedding": "nextn.enorm",
    "mtp.pre_fc_norm_hidden": "nextn.hnorm",
    "mtp.norm": "nextn.shared_head_norm",
    "mtp.embed_tokens": "nextn.embed_tokens",
}
"""Modules beside the decoder layer of a multi-token layer, which comes after those of the model."""
LFM2 = EXPERTS | {
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "conv.conv": "shortconv.conv",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "model.norm": "token_embd_norm",
}
_MAMBA = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "dt_bias": "ssm_dt.bias",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}
GRANITE_HYBRID = EXPERTS | _SHARED | {f"mamba.{module}": name for module, name in _MAMBA.items()}
NEMOTRON_H = {
    "norm": "attn_norm",
    **{f"mixer.{module}": name for module, name in _MAMBA.items()},
    **{f"mixer.{module}_proj": f"attn_{module}" for module in ("q", "k", "v")},
    "mixer.o_proj": "attn_output",
    **{f"mixer.{module}_proj": f"ffn_{module}" for module in ("up", "down")},
    **{f"mixer.experts.{module}_proj": f"ffn_{module}_exps" for module in ("up", "down")},
    **{f"mixer.shared_experts.{module}_proj": f"ffn_{module}_shexp" for module in ("up", "down")},
    "mixer.gate": "ffn_gate_inp",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mixer.fc1_latent_proj": "ffn_latent_down",
    "mixer.fc2_latent_proj": "ffn_latent_up",
}
BERT = {
    "model.embed_positions": "position_embd",
    "model.embed_types": "token_types",
    "model.embed_norm": "token_embd_norm",
    "attention_norm": "attn_output_norm",
    "mlp_norm": "layer_output_norm",
}
FUSED = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""Names in families that normalise a block's output."""
GEMMA4 = SANDWICH | {
    "layer_scalar": "layer_output_scale",
    "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_proj": "ffn_gate_exps",
    "experts.up_proj": "ffn_up_exps",
    "experts.down_proj": "ffn_down_exps",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
ROPE_FACTORS = "rope_freqs.weight"
"""Divisor of each rotary frequency, float32 ``[head_dim / 2]``; most files have none."""
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
"""The same up to the original context, and beyond it (LongRoPE)."""
NO_PARAMETERS = frozenset((ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS))


class Names:
    """An architecture's names: the common ones, and ``own``, which differ or come besides; ``layers`` of the model."""

    def __init__(self, own: Mapping[str, str], layers: int = 0) -> None:
        self._inner, self._layers = _INNER | dict(own), layers

    def module(self, module: str) -> str:
        """``model.layers.3.mlp.up_proj`` -> ``blk.3.ffn_up``. Raises KeyError for a module without a name in GGUF."""
        if module in NEXT:
            return f"blk.{self._layers}.{NEXT[module]}"
        match = _LAYER.fullmatch(module.replace("mtp.layers.0.", f"model.layers.{self._layers}.", 1))
        if match is None:
            return self._inner.get(module) or _OUTER[module]
        return f"blk.{match[1]}.{self._inner[match[2]]}"

    def tensor(self, tensor: str) -> str:
        """Same as :meth:`module`, for a tensor's name, with ``.weight`` or ``.bias`` at its end, or with neither."""
        module, _, kind = tensor.rpartition(".")
        if kind in ("A_log", "D", "dt_bias", "scale", "per_expert_scale", "e_score_correction_bias"):
            return self.module(tensor)
        return f"{self.module(module)}.{kind}" if kind in ("weight", "bias") else f"{self.module(tensor)}.weight"

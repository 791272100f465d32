"""What GGUF calls the modules whose names families know from Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
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
"""Experts are stacked: one tensor ``[experts, rows, columns]`` for each of their modules."""
STACKED = "_exps"
"""Ends their names. Before 2024-04 each was a tensor of its own: ``blk.3.ffn_up.7`` and not ``blk.3.ffn_up_exps``."""
MIXTRAL = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
}
DEEPSEEK2 = EXPERTS | {
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}
KV_UP, K_UP, V_UP = "attn_kv_b", "attn_k_b", "attn_v_b"
"""Latent attention's projection up to keys and values ``[heads * (nope + value), rank]``: the whole, or its two parts
``[heads, rank, nope]`` and ``[heads, value, rank]``."""
GPT_OSS = EXPERTS | {
    "mlp.router": "ffn_gate_inp",
    "self_attn.sinks": "attn_sinks",
    "post_attention_layernorm": "post_attention_norm",
}
FUSED = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""Names in families that normalise a block's output."""
ROPE_FACTORS = "rope_freqs.weight"
"""What each rotary frequency is divided by, float32 ``[head_dim / 2]``; most files have none."""
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
"""The same up to the original context, and beyond it (LongRoPE)."""
NO_PARAMETERS = frozenset((ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS))


class Names:
    """An architecture's names: the common ones, and ``own``, which differ or come besides."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._inner = _INNER | dict(own)

    def module(self, module: str) -> str:
        """``model.layers.3.mlp.up_proj`` -> ``blk.3.ffn_up``. Raises KeyError for a module without a name in GGUF."""
        match = _LAYER.fullmatch(module)
        return f"blk.{match[1]}.{self._inner[match[2]]}" if match else _OUTER[module]

    def tensor(self, tensor: str) -> str:
        """As :meth:`module`, for a name with ``.weight`` or ``.bias`` at its end, or with neither."""
        module, _, kind = tensor.rpartition(".")
        return f"{self.module(module)}.{kind}" if kind in ("weight", "bias") else f"{self.module(tensor)}.weight"

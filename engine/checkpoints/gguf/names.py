"""What GGUF calls the modules whose names families know from Hugging Face."""

from __future__ import annotations

import re

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
ROPE_FACTORS = "rope_freqs.weight"
"""What each rotary frequency is divided by, float32 ``[head_dim / 2]``; most files have none."""


def gguf_module(module: str) -> str:
    """``model.layers.3.mlp.up_proj`` -> ``blk.3.ffn_up``. Raises KeyError for a module that GGUF has no name for."""
    match = _LAYER.fullmatch(module)
    return f"blk.{match[1]}.{_INNER[match[2]]}" if match else _OUTER[module]


def gguf_tensor(tensor: str) -> str:
    """As :func:`gguf_module`, for a name with ``.weight`` or ``.bias`` at its end."""
    module, _, kind = tensor.rpartition(".")
    return f"{gguf_module(module)}.{kind}"

"""Tiny models of Gemma 4, whose layers differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.kit.checkpoints import EOS, write_tokenizer

LOCAL, GLOBAL = "sliding_attention", "full_attention"
SHAPE: dict[str, Any] = {
    "vocab_size": EOS + 1,
    "vocab_size_per_layer_input": EOS + 1,
    "hidden_size": 64,
    "hidden_size_per_layer_input": 16,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "global_head_dim": 64,
    "layer_types": [LOCAL, LOCAL, LOCAL, GLOBAL, LOCAL, GLOBAL, LOCAL, GLOBAL],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "sliding_window": 40,
    "final_logit_softcapping": 20.0,
    "max_position_embeddings": 1024,
    "eos_token_id": EOS,
    "bos_token_id": None,
}
SMALL = SHAPE | {"num_hidden_layers": 2, "layer_types": [LOCAL, GLOBAL], "num_kv_shared_layers": 0}


def write_gemma(folder: Path, shape: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**shape))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.uniform_(0.7, 1.3) if "norm" in name.rsplit(".", 2)[-2] else parameter.normal_(0, 0.12)
    model.save_pretrained(folder)
    write_tokenizer(folder)

"""A sound checkpoint, modules packed in every way that is read, and what is said of one that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.errors import CheckpointError
from engine.formats.open import open_checkpoint


def compressed(scheme: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    """A quantization_config of compressed-tensors with one scheme, changed."""
    sound = {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "channel"}, "input_activations": None}
    whole = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    return whole | {"config_groups": {"group_0": sound | (scheme or {})}} | values


CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "dtype": "float32",
}


def tensors() -> dict[str, torch.Tensor]:
    found = {
        "model.embed_tokens.weight": torch.randn(40, 32),
        "model.norm.weight": torch.ones(32),
        "lm_head.weight": torch.randn(40, 32),
    }
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        found |= {
            f"{prefix}self_attn.q_proj.weight": torch.randn(32, 32),
            f"{prefix}self_attn.k_proj.weight": torch.randn(16, 32),
            f"{prefix}self_attn.v_proj.weight": torch.randn(16, 32),
            f"{prefix}self_attn.o_proj.weight": torch.randn(32, 32),
            f"{prefix}mlp.gate_proj.weight": torch.randn(64, 32),
            f"{prefix}mlp.up_proj.weight": torch.randn(64, 32),
            f"{prefix}mlp.down_proj.weight": torch.randn(32, 64),
            f"{prefix}input_layernorm.weight": torch.ones(32),
            f"{prefix}post_attention_layernorm.weight": torch.ones(32),
        }
    return found


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    text = str(caught.value)
    assert text.endswith(".")
    assert ". " in text, "it says what happened, then what to do"
    assert "\n" not in text
    return text


NAME = "model.layers.1.mlp.down_proj"
"""32 output features, 64 input features."""
Held = dict[str, torch.Tensor]


def words(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def state(**values: Any) -> torch.Tensor:
    sound = {"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [32, 64]}
    return text(json.dumps(sound | values))


def text(raw: str) -> torch.Tensor:
    return torch.tensor(list(raw.encode()), dtype=torch.uint8)


STATE = "weight.quant_state.bitsandbytes__nf4"
NF4 = {
    "weight": torch.zeros(1024, 1, dtype=torch.uint8), "weight.absmax": torch.ones(32),
    "weight.quant_map": torch.linspace(-1, 1, 16), STATE: state(),
}  # fmt: skip
NESTED = NF4 | {
    "weight.absmax": torch.zeros(32, dtype=torch.uint8), "weight.nested_absmax": torch.ones(1),
    "weight.nested_quant_map": torch.ones(256), STATE: state(nested_blocksize=256, nested_offset=0.1),
}  # fmt: skip
GPTQ = {"qweight": words(8, 32), "qzeros": words(2, 4), "scales": torch.ones(2, 32)}
GPTQ3 = {"qweight": words(6, 32), "qzeros": words(2, 3), "scales": torch.ones(2, 32)}
AWQ = {"qweight": words(64, 4), "qzeros": words(2, 4), "scales": torch.ones(2, 32)}
PACKED = {
    "weight_packed": words(32, 8), "weight_scale": torch.ones(32, 1), "weight_shape": torch.tensor([32, 64]),
}  # fmt: skip
ROWS = {
    "weight": torch.zeros(32, 64, dtype=torch.int8), "SCB": torch.ones(32),
    "weight_format": torch.tensor(0, dtype=torch.uint8),
}  # fmt: skip
STATED = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False},
    "gptq3": {"quant_method": "gptq", "bits": 3, "group_size": 32, "sym": False},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32},
    "compressed": compressed(),
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "nested": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
}
SOUND: dict[str, Held] = {
    "gptq": GPTQ, "gptq3": GPTQ3, "awq": AWQ, "compressed": PACKED, "nf4": NF4, "nested": NESTED, "int8": ROWS,
}  # fmt: skip

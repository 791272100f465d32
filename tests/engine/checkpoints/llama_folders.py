"""Folders of a Llama with random weights, packed and not."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def write_gptq(folder: Path, layers: int = 2, hidden: int = 128, inner: int = 256, vocabulary: int = 64) -> None:
    """A packed Llama with random codes."""
    generator = torch.Generator().manual_seed(1)
    kv = hidden // 2
    sizes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, kv),
        "self_attn.v_proj": (hidden, kv),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
    tensors = {
        "model.embed_tokens.weight": torch.randn(vocabulary, hidden, generator=generator).half(),
        "model.norm.weight": torch.ones(hidden).half(),
    }
    words = {"low": -(1 << 31), "high": 1 << 31, "dtype": torch.int32, "generator": generator}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name, (inputs, outputs) in sizes.items():
            tensors[f"{prefix}{name}.qweight"] = torch.randint(size=(inputs // 8, outputs), **words)
            tensors[f"{prefix}{name}.qzeros"] = torch.full((inputs // 32, outputs // 8), 0x77777777, dtype=torch.int32)
            tensors[f"{prefix}{name}.scales"] = torch.full((inputs // 32, outputs), 0.01).half()
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{name}.weight"] = torch.ones(hidden).half()
    save_file(tensors, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner, "dtype": "float16",
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": vocabulary,
        "max_position_embeddings": 128, "tie_word_embeddings": True,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def write_dense(folder: Path, layers: int, hidden: int, inner: int, vocabulary: int) -> None:
    """A bfloat16 Llama, beside the config of :func:`write_gptq`; the rows of its weights are few random ones again."""
    write_gptq(folder, layers, hidden, inner, vocabulary)
    packed = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    tensors = {name: value.bfloat16() for name, value in packed.items() if name.endswith(".weight")}
    for name, words in packed.items():
        if name.endswith(".qweight"):
            shape = (words.shape[1], words.shape[0] * 8)
            few = torch.randn(8, shape[1], generator=generator).bfloat16()
            tensors[name.replace("qweight", "weight")] = few.repeat(shape[0] // 8, 1)
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))

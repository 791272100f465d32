"""Folders of a Llama with random weights, packed and not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

NORMS = ("input_layernorm", "post_attention_layernorm")


def write_gptq(folder: Path, layers: int = 2, hidden: int = 128, inner: int = 256, vocabulary: int = 64) -> None:
    """A packed Llama with random codes."""
    generator = torch.Generator().manual_seed(1)
    tensors = _unpacked(layers, hidden, vocabulary, torch.float16, generator)
    words = {"low": -(1 << 31), "high": 1 << 31, "dtype": torch.int32, "generator": generator}
    for name, inputs, outputs in _matrices(layers, hidden, inner):
        tensors[f"{name}.qweight"] = torch.randint(size=(inputs // 8, outputs), **words)
        tensors[f"{name}.qzeros"] = torch.full((inputs // 32, outputs // 8), 0x77777777, dtype=torch.int32)
        tensors[f"{name}.scales"] = torch.full((inputs // 32, outputs), 0.01).half()
    packing = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}
    _save(folder, tensors, {**_config(layers, hidden, inner, vocabulary, "float16"), "quantization_config": packing})


def write_dense(folder: Path, layers: int, hidden: int, inner: int, vocabulary: int) -> None:
    """A bfloat16 Llama; the rows of its weights are few random ones again."""
    generator = torch.Generator().manual_seed(1)
    tensors = _unpacked(layers, hidden, vocabulary, torch.bfloat16, generator)
    for name, inputs, outputs in _matrices(layers, hidden, inner):
        few = torch.randn(8, inputs, generator=generator).bfloat16()
        tensors[f"{name}.weight"] = few.repeat(outputs // 8, 1)
    _save(folder, tensors, _config(layers, hidden, inner, vocabulary, "bfloat16"))


def _matrices(layers: int, hidden: int, inner: int) -> Iterator[tuple[str, int, int]]:
    """Names, input features and output features."""
    sizes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, hidden // 2),
        "self_attn.v_proj": (hidden, hidden // 2),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
    return ((f"model.layers.{layer}.{name}", *size) for layer in range(layers) for name, size in sizes.items())


def _unpacked(
    layers: int, hidden: int, vocabulary: int, dtype: torch.dtype, generator: torch.Generator
) -> dict[str, Tensor]:
    """What is packed in neither."""
    norms = [f"model.layers.{layer}.{name}" for layer in range(layers) for name in NORMS]
    return {
        "model.embed_tokens.weight": torch.randn(vocabulary, hidden, generator=generator).to(dtype),
        **{f"{name}.weight": torch.ones(hidden, dtype=dtype) for name in ("model.norm", *norms)},
    }


def _config(layers: int, hidden: int, inner: int, vocabulary: int, dtype: str) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner, "dtype": dtype,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": vocabulary,
        "max_position_embeddings": 128, "tie_word_embeddings": True,
    }  # fmt: skip


def _save(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))

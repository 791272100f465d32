"""Tiny random models in GGUF, written with the gguf package from the metadata that llama.cpp's converters write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from engine.compute.layers.linear.ggml_blocks import BLOCKS
from tests.engine.compute.layers.ggml_support import rows_of

KIND = gguf.GGMLQuantizationType
FLOATING = {KIND.F32: torch.float32, KIND.F16: torch.float16, KIND.BF16: torch.bfloat16}
VOCABULARY = 160
LAYERS = 2
WEIGHT = 0.08
"""The weights' standard deviation."""


@dataclass(frozen=True)
class Shape:
    """``types`` are by the start of what follows "blk.N." (or of the name), the longest match wins; "" is the rest."""

    architecture: str
    types: Mapping[str, KIND]
    tied: bool = False
    hidden: int = 256
    inner: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    biases: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    rope_factors: tuple[float, ...] = ()
    vocabulary: int = VOCABULARY

    def tensors(self) -> dict[str, tuple[int, ...]]:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocabulary, self.hidden)}
        for layer in range(LAYERS):
            sizes: dict[str, tuple[int, ...]] = {
                "attn_q": (q, self.hidden),
                "attn_k": (kv, self.hidden),
                "attn_v": (kv, self.hidden),
                "attn_output": (self.hidden, q),
                "ffn_gate": (self.inner, self.hidden),
                "ffn_up": (self.inner, self.hidden),
                "ffn_down": (self.hidden, self.inner),
                "attn_norm": (self.hidden,),
                "ffn_norm": (self.hidden,),
            }
            if self.architecture in ("qwen3", "qwen3vl"):
                sizes |= {"attn_q_norm": (self.head_dim,), "attn_k_norm": (self.head_dim,)}
            found |= {f"blk.{layer}.{name}.weight": size for name, size in sizes.items()}
            found |= {f"blk.{layer}.{name}.bias": sizes[name][:1] for name in self.biases}
        found["output_norm.weight"] = (self.hidden,)
        if not self.tied:
            found["output.weight"] = (self.vocabulary, self.hidden)
        return found

    def type(self, name: str) -> KIND:
        local = name.split(".", 2)[2] if name.startswith("blk.") else name
        return self.types[max((start for start in self.types if local.startswith(start)), key=len)]


def packed(kind: KIND, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Random rows of blocks whose weights have the wanted size."""
    raw = rows_of(int(kind), 4, shape[1], seed, 1.0)
    scale = WEIGHT / float(gguf.quants.dequantize(raw.numpy(), kind).std())
    return rows_of(int(kind), *shape, seed, scale)


def write(file: Path, shape: Shape, tokenizer: Callable[[gguf.GGUFWriter], None] | None = None) -> None:
    writer = gguf.GGUFWriter(str(file), shape.architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500.0)
    for key, value in shape.values.items():
        {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)](key, value)
    (tokenizer or plain_tokenizer)(writer)
    for seed, (name, size) in enumerate(shape.tensors().items()):
        generator = torch.Generator().manual_seed(seed)
        kind = shape.type(name)
        if len(size) == 1:
            norm = name.endswith("norm.weight")
            vector = torch.rand(size, generator=generator) + 0.5 if norm else torch.randn(size, generator=generator)
            writer.add_tensor(name, vector.numpy())
        elif kind in FLOATING:
            matrix = (torch.randn(size, generator=generator) * WEIGHT).to(FLOATING[kind])
            bits = matrix.view(torch.uint8).numpy() if kind == KIND.BF16 else matrix.numpy()
            writer.add_tensor(name, bits, raw_dtype=kind)
        elif int(kind) not in BLOCKS:
            block, size_of = gguf.GGML_QUANT_SIZES[kind]
            writer.add_tensor(name, np.zeros((size[0], size[1] // block * size_of), np.uint8), raw_dtype=kind)
        else:
            writer.add_tensor(name, packed(kind, size, seed).numpy(), raw_dtype=kind)
    if shape.rope_factors:
        writer.add_tensor("rope_freqs.weight", np.asarray(shape.rope_factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plain_tokenizer(writer: gguf.GGUFWriter) -> None:
    """Three special tokens, one for each byte, and nothing else."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(VOCABULARY - 3))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3] + [6] * (len(tokens) - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

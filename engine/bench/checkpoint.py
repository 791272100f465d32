"""Checkpoints of true shape with random weights: Llama shapes as GPTQ int4 safetensors and as Q4_0 GGUF.

Random weights serve for speed, since no kernel here depends on the values. Both files hold the same shape in about
the same bits (4.2 to 4.6 per weight), the output head quantised like the rest, so that the programs read about as much.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

_SYMMETRIC_V1 = 0x77777777
"""A word of eight zero points 8, as GPTQ v1 stores them (less one)."""
_Q4_0_BLOCK = np.dtype([("d", "<f2"), ("qs", "u1", 16)])


@dataclass(frozen=True)
class Shape:
    """A Llama decoder's dimensions. ``group`` is the GPTQ group, in input features."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int = 4096
    group: int = 32

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def linears(self) -> Iterator[tuple[str, int, int]]:
        """(name in Hugging Face layout, K, N) of every quantised matrix."""
        kv = self.kv_heads * self.head_dim
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            yield prefix + "self_attn.q_proj", self.hidden, self.hidden
            yield prefix + "self_attn.k_proj", self.hidden, kv
            yield prefix + "self_attn.v_proj", self.hidden, kv
            yield prefix + "self_attn.o_proj", self.hidden, self.hidden
            yield prefix + "mlp.gate_proj", self.hidden, self.ffn
            yield prefix + "mlp.up_proj", self.hidden, self.ffn
            yield prefix + "mlp.down_proj", self.ffn, self.hidden
        yield "lm_head", self.hidden, self.vocabulary

    def norms(self) -> Iterator[str]:
        for layer in range(self.layers):
            yield f"model.layers.{layer}.input_layernorm"
            yield f"model.layers.{layer}.post_attention_layernorm"
        yield "model.norm"

    def config(self) -> dict[str, object]:
        """config.json without its quantisation."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "eos_token_id": 1,
            "bos_token_id": 0,
        }


ONE_B = Shape("llama-1b", layers=16, hidden=2048, ffn=8192, heads=32, kv_heads=8, vocabulary=128256)
EIGHT_B = Shape(
    "llama-8b", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocabulary=128256, context=8192, group=128
)
SHAPES = {"1b": ONE_B, "8b": EIGHT_B}
"""What ``kvasir bench --shapes`` knows."""


def gptq_folder(shape: Shape, root: Path) -> Path:
    """A GPTQ int4 (symmetric, v1) checkpoint of ``shape`` with random codes, made once under ``root``."""
    folder = root / f"{shape.name}-gptq-g{shape.group}"
    if (folder / "complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    tensors: dict[str, torch.Tensor] = {}
    for name, k, n in shape.linears():
        low, high = -(2**31), 2**31 - 1
        tensors[name + ".qweight"] = torch.randint(low, high, (k // 8, n), dtype=torch.int32, generator=generator)
        tensors[name + ".qzeros"] = torch.full((k // shape.group, n // 8), _SYMMETRIC_V1, dtype=torch.int32)
        tensors[name + ".scales"] = torch.full((k // shape.group, n), k**-0.5 / 4.6, dtype=torch.float16)
        tensors[name + ".g_idx"] = torch.arange(k, dtype=torch.int32) // shape.group
    for name in shape.norms():
        tensors[name + ".weight"] = torch.ones(shape.hidden, dtype=torch.bfloat16)
    table = torch.empty(shape.vocabulary, shape.hidden, dtype=torch.bfloat16)
    tensors["model.embed_tokens.weight"] = table.normal_(0, 1, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantisation = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": shape.group,
        "desc_act": False,
        "sym": True,
        "lm_head": True,
        "checkpoint_format": "gptq",
    }
    (folder / "config.json").write_text(json.dumps({**shape.config(), "quantization_config": quantisation}))
    _write_tokenizer(folder, shape.vocabulary)
    (folder / "complete").touch()
    return folder


def _write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A word-level tokenizer with one made-up word per id: enough to turn generated ids into text."""
    words = {f"w{index}": index for index in range(vocabulary)}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 4096}))


def gguf_file(shape: Shape, root: Path) -> Path:
    """A Q4_0 GGUF of ``shape`` with random codes, made once under ``root``. Raises ImportError without ``gguf``."""
    import gguf  # only the comparison needs it

    path = root / f"{shape.name}-q4_0.gguf"
    if path.exists():
        return path
    root.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    writer = gguf.GGUFWriter(unfinished, "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"w{index}" for index in range(shape.vocabulary)])
    writer.add_token_scores([0.0] * shape.vocabulary)
    writer.add_token_types([gguf.TokenType.NORMAL] * shape.vocabulary)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    rng = np.random.default_rng(0)
    for name, k, n in (("token_embd", shape.hidden, shape.vocabulary), *shape.linears()):
        blocks = np.zeros((n, k // 32), dtype=_Q4_0_BLOCK)
        blocks["d"] = k**-0.5 / 4.6
        blocks["qs"] = rng.integers(0, 256, (n, k // 32, 16), dtype=np.uint8)
        data = blocks.view(np.uint8).reshape(n, -1)
        writer.add_tensor(_gguf_name(name), data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for name in shape.norms():
        writer.add_tensor(_gguf_name(name), np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(path)
    return path


_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.norm": "output_norm",
    "lm_head": "output",
    "token_embd": "token_embd",
}


def _gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face tensor name (both without ``.weight``)."""
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[rest]}.weight"
    return f"{_GGUF_NAMES[name]}.weight"

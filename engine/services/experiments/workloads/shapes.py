"""The shapes that are measured, decoders of the Llama kind, and folders of such a shape with random weights.

Random weights serve for speed, since no kernel here depends on the values. The output head is packed like the rest, so
that programs and formats read about as much.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

Module = Callable[[int, int, torch.Generator], dict[str, Tensor]]
"""(input features, output features, generator) -> the tensors of one module, by the ends of their names."""
_SYMMETRIC_V1 = 0x77777777
"""A word of eight zero points 8, as GPTQ v1 stores them (less one)."""
_SPREAD = 4.6
"""The standard deviation of random codes -8..7, which scales undo."""
SHARPNESS = 4.0
"""The weights of the last norm, hence the spread of the logits, about that of a trained model. With flat ones the
nucleus of top-p is most of the vocabulary, and drawing from it takes longer than the model does."""


@dataclass(frozen=True)
class Shape:
    """A Llama decoder's dimensions. ``group`` is the GPTQ group, in input features.

    ``tied``: the token table is the output head too.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int = 4096
    group: int = 32
    tied: bool = False

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
        if not self.tied:
            yield "lm_head", self.hidden, self.vocabulary

    def norms(self) -> Iterator[str]:
        for layer in range(self.layers):
            yield f"model.layers.{layer}.input_layernorm"
            yield f"model.layers.{layer}.post_attention_layernorm"
        yield "model.norm"

    def prompt(self, tokens: int, first: int = 0) -> list[int]:
        """A made-up prompt of that many tokens; another one for another ``first``."""
        return [5 + (first + index * 7919) % (self.vocabulary - 5) for index in range(tokens)]

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
            "tie_word_embeddings": self.tied,
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


def gptq_folder(shape: Shape, root: Path, packed_head: bool = True) -> Path:
    """GPTQ 4-bit, symmetric, v1. Most such files leave the output head in 16 bits (``packed_head`` False)."""
    group = shape.group

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "qweight": random_words(k // 8, n, generator),
            "qzeros": torch.full((k // group, n // 8), _SYMMETRIC_V1, dtype=torch.int32),
            "scales": torch.full((k // group, n), scale_of(k), dtype=torch.float16),
            "g_idx": torch.arange(k, dtype=torch.int32) // group,
        }

    stated = {"bits": 4, "group_size": group, "desc_act": False, "sym": True, "lm_head": packed_head}
    quantisation = {"quant_method": "gptq", "checkpoint_format": "gptq", **stated}
    name = f"gptq-g{group}" if packed_head else f"gptq-g{group}-head16"
    return shape_folder(shape, root, name, quantisation, module, packed_head)


def plain_weights(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
    return {"weight": torch.empty(n, k, dtype=torch.bfloat16).normal_(0, k**-0.5, generator=generator)}


def shape_folder(
    shape: Shape, root: Path, name: str, quantisation: dict[str, Any] | None, module: Module, packed_head: bool = True
) -> Path:
    """The folder of ``shape`` under ``root``, made once."""
    folder = root / f"{shape.name}-{name}"
    complete = folder / f"complete-{SHARPNESS:g}"
    if complete.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    tensors: dict[str, Tensor] = {}
    for linear, k, n in shape.linears():
        make = module if packed_head or linear != "lm_head" else plain_weights
        tensors |= {f"{linear}.{end}": tensor for end, tensor in make(k, n, generator).items()}
    for norm in shape.norms():
        value = SHARPNESS if norm == "model.norm" else 1.0
        tensors[f"{norm}.weight"] = torch.full((shape.hidden,), value, dtype=torch.bfloat16)
    table = torch.empty(shape.vocabulary, shape.hidden, dtype=torch.bfloat16)
    tensors["model.embed_tokens.weight"] = table.normal_(0, 1, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = shape.config() if quantisation is None else shape.config() | {"quantization_config": quantisation}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, shape.vocabulary)
    complete.touch()
    return folder


def random_words(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randint(-(2**31), 2**31 - 1, (rows, columns), dtype=torch.int32, generator=generator)


def scale_of(k: int) -> float:
    return float(k**-0.5 / _SPREAD)


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A word-level tokenizer with one made-up word per id: enough to turn generated ids into text."""
    words = {f"w{index}": index for index in range(vocabulary)}
    unused = dict.fromkeys(("normalizer", "post_processor", "decoder"))
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | unused))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 4096}))

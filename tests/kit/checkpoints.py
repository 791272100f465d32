"""Tiny checkpoints of random weights, made by transformers; one character is one token."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

LETTERS = string.ascii_letters + string.digits + string.punctuation
EOS = len(LETTERS)
ALPHABET = string.ascii_lowercase
_SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": None,
          "initializer_range": 0.12}  # fmt: skip
_SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 1, "max_position_embeddings": 128, "initializer_range": 0.2}  # fmt: skip


def write_model(folder: Path, make: Callable[[], PreTrainedModel], letters: str = LETTERS, noise: float = 0.0) -> Path:
    """What ``make`` makes of a fixed seed, plus ``noise`` in standard deviations of each tensor; with a tokenizer."""
    torch.manual_seed(0)
    model = make()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * parameter.std().nan_to_num() * torch.randn_like(parameter)
    model.save_pretrained(folder)
    write_tokenizer(folder, letters)
    return folder


def write_llama(folder: Path, letters: str = LETTERS, noise: float = 0.0, **options: Any) -> Path:
    """A Llama; ``options`` are of its configuration."""
    config = LlamaConfig(**(_SHAPE | {"vocab_size": len(letters) + 1, "eos_token_id": len(letters)} | options))
    return write_model(folder, lambda: LlamaForCausalLM(config), letters, noise)


def write_small(folder: Path, letters: str = ALPHABET, padding: int = 0, **options: Any) -> Path:
    """A Llama of one layer; ``padding`` rows of its token table stand for no token."""
    return write_llama(folder, letters, vocab_size=len(letters) + 1 + padding, **(_SMALL | options))


def write_tokenizer(folder: Path, letters: str = LETTERS) -> None:
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([tokenizers.AddedToken("<end>", special=True)])
    inner.save(str(folder / "tokenizer.json"))


def quiet(folder: Path) -> None:
    """Weaken what the layers add, so that the next token depends mostly on the last one."""
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = tensors[name] * 0.05
    save_file(tensors, folder / "model.safetensors")

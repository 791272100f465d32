"""Tiny hybrid models of fixed random weights, with a multi-token layer; one character is one token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.compute.models.heads.mtp import QWEN
from tests.kit.checkpoints import EOS, write_tokenizer

SHAPE: dict[str, Any] = {
    "vocab_size": EOS + 1,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "max_position_embeddings": 1024,
    "eos_token_id": EOS,
    "bos_token_id": None,
    "tie_word_embeddings": False,
}


def write_hybrid(
    folder: Path, kind: type[transformers.PreTrainedModel] = transformers.Qwen3_5ForCausalLM, **options: Any
) -> None:
    """Save a checkpoint of transformers' ``kind``, and ``options`` of its configuration."""
    torch.manual_seed(0)
    given = SHAPE | options
    if kind is not transformers.Qwen3_5ForCausalLM:
        del given["intermediate_size"]
    model = kind(kind.config_class(**given))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(-0.3, 0.3) if "linear_attn" not in name else parameter.uniform_(0.5, 1.5)
            elif name.endswith("A_log"):
                parameter.uniform_(-3, 0)
            else:
                parameter.normal_(0, 0.12)
    model.save_pretrained(folder)
    add_mtp(folder)
    write_tokenizer(folder)


def write_states(folder: Path, family: str, seed: int = 0, **options: Any) -> None:
    """Save a checkpoint of transformers' ``family``, whose layers have states, without a multi-token layer."""
    torch.manual_seed(seed)
    shape = {key: SHAPE[key] for key in SHAPE if not key.startswith(("linear", "head_dim", "num_hidden"))}
    config = getattr(transformers, f"{family}Config")(**(shape | options))
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("A_log", "dt_bias")):
                parameter.uniform_(-3, 0)
            else:
                parameter.uniform_(0.7, 1.3) if parameter.ndim == 1 else parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    write_tokenizer(folder)


def add_mtp(folder: Path) -> None:
    """A layer shaped like the last one, quiet enough that it mostly passes on what the target's last state says."""
    tensors = load_file(folder / "model.safetensors")
    torch.manual_seed(4)
    last = next(name for name in tensors if name.endswith("self_attn.q_proj.weight")).removesuffix(
        "self_attn.q_proj.weight"
    )
    for name in [name for name in tensors if name.startswith(last)]:
        part = name.removeprefix(last)
        made = tensors[name].clone() if tensors[name].ndim == 1 else 0.1 * torch.randn(tensors[name].shape)
        tensors[QWEN.layer + part] = 0.3 * made if part.endswith(("o_proj.weight", "down_proj.weight")) else made
    norm = "model.norm.weight" if "model.norm.weight" in tensors else "model.language_model.norm.weight"
    width = tensors[norm].shape[0]
    for name in (QWEN.hidden_norm, QWEN.token_norm, QWEN.final_norm):
        tensors[name] = 0.2 * torch.randn(width)
    tensors[QWEN.mark] = torch.cat((0.1 * torch.randn(width, width), torch.eye(width)), 1)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})

"""LoRA adapters in PEFT's format with random weights, and transformers' models with the same added to their weights."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


def modules(model: torch.nn.Module, targets: Sequence[str]) -> Iterator[tuple[str, torch.nn.Linear]]:
    """The linear modules of a model that are called so."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.rpartition(".")[2] in targets:
            yield name, module


def write_adapter(
    folder: Path,
    model: torch.nn.Module,
    targets: Sequence[str] = ALL,
    rank: int = 4,
    seed: int = 0,
    strength: float = 1.0,
    ranks: Mapping[str, int] | None = None,
    **config: Any,
) -> Path:
    """An adapter for the model's modules; ``ranks`` are exceptions, by the ends of modules' names."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name, module in modules(model, targets):
        own = next((value for end, value in (ranks or {}).items() if name.endswith(end)), rank)
        down = torch.randn(own, module.in_features, generator=generator) / math.sqrt(module.in_features)
        up = torch.randn(module.out_features, own, generator=generator) * strength / own
        tensors |= {f"base_model.model.{name}.lora_{half}.weight": each for half, each in (("A", down), ("B", up))}
    stated = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(targets), "bias": "none",
              "base_model_name_or_path": "a tiny model", "fan_in_fan_out": False, "modules_to_save": None,
              "rank_pattern": dict(ranks or {}), "alpha_pattern": {}, "use_dora": False, "use_rslora": False,
              "init_lora_weights": True, "task_type": "CAUSAL_LM"}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(stated | config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


@torch.no_grad()
def merged(model: Any, folder: Path) -> Any:
    """A copy of transformers' model with ``scale * B A`` added to its weights, by PEFT's own rules."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    copy = type(model)(model.config).eval()
    copy.load_state_dict(model.state_dict())
    for name, module in copy.named_modules():
        down = tensors.get(f"base_model.model.{name}.lora_A.weight")
        if down is not None:
            alpha = _by_pattern(config["alpha_pattern"], name, config["lora_alpha"])
            rank = _by_pattern(config["rank_pattern"], name, config["r"])
            scale = alpha / math.sqrt(rank) if config["use_rslora"] else alpha / rank
            module.weight += scale * (tensors[f"base_model.model.{name}.lora_B.weight"] @ down)
    return copy


def _by_pattern(patterns: Mapping[str, Any], name: str, usual: Any) -> Any:
    """As PEFT's ``get_pattern_key`` finds it."""
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", name)), usual)

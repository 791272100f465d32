"""Checkpoint folders of true shape with random weights, one for each packed format of safetensors besides GPTQ."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from engine.formats.quantised.quantise import NF4
from engine.services.experiments.workloads.shapes import Shape, plain_weights, random_words, scale_of, shape_folder


def awq_folder(shape: Shape, root: Path) -> Path:
    """AWQ 4-bit, with zero-points."""
    group = shape.group

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "qweight": random_words(k, n // 8, generator),
            "qzeros": random_words(k // group, n // 8, generator),
            "scales": torch.full((k // group, n), scale_of(k), dtype=torch.float16),
        }

    stated = {"bits": 4, "group_size": group, "zero_point": True, "version": "gemm", "modules_to_not_convert": None}
    return shape_folder(shape, root, f"awq-g{group}", {"quant_method": "awq", **stated}, module)


def compressed_folder(shape: Shape, root: Path) -> Path:
    """compressed-tensors, 4-bit, symmetric, pack-quantized."""
    group = shape.group

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "weight_packed": random_words(n, k // 8, generator),
            "weight_scale": torch.full((n, k // group), scale_of(k), dtype=torch.bfloat16),
            "weight_shape": torch.tensor([n, k]),
        }

    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": group}
    quantisation = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": [],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    return shape_folder(shape, root, f"compressed-g{group}", quantisation, module)


def nf4_folder(shape: Shape, root: Path) -> Path:
    """bitsandbytes NF4 in blocks of 64."""

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [n, k]}
        return {
            "weight": _bytes(n * k // 2, generator)[:, None],
            "weight.absmax": torch.full((n * k // 64,), scale_of(k) * 8),
            "weight.quant_map": torch.tensor(NF4),
            "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8),
        }

    quantisation = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": "bfloat16",
        "bnb_4bit_use_double_quant": False,
        "llm_int8_skip_modules": [],
    }
    return shape_folder(shape, root, "nf4", quantisation, module)


def int8_folder(shape: Shape, root: Path) -> Path:
    """bitsandbytes LLM.int8."""

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "weight": _bytes(n * k, generator).view(torch.int8).view(n, k),
            "SCB": torch.full((n,), scale_of(k) * 8),
            "weight_format": torch.tensor(0, dtype=torch.uint8),
        }

    quantisation = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": []}
    return shape_folder(shape, root, "int8", quantisation, module)


def plain_folder(shape: Shape, root: Path) -> Path:
    """bfloat16."""
    return shape_folder(shape, root, "bf16", None, plain_weights)


def _bytes(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)

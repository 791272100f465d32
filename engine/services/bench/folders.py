"""Checkpoint folders of true shape with random weights, one for each packed format of safetensors.

Random weights serve for speed, since no kernel here depends on the values. The output head is packed like the rest, so
that programs and formats read about as much.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.formats.quantised.quantise import NF4
from engine.services.bench.shapes import Shape

Module = Callable[[int, int, torch.Generator], dict[str, Tensor]]
"""(input features, output features, generator) -> the tensors of one module, by the ends of their names."""
_SYMMETRIC_V1 = 0x77777777
"""A word of eight zero points 8, as GPTQ v1 stores them (less one)."""
_SPREAD = 4.6
"""The standard deviation of random codes -8..7, which scales undo."""
SHARPNESS = 4.0
"""The weights of the last norm, hence the spread of the logits, about that of a trained model. With flat ones the
nucleus of top-p is most of the vocabulary, and drawing from it takes longer than the model does."""


def gptq_folder(shape: Shape, root: Path, packed_head: bool = True) -> Path:
    """GPTQ 4-bit, symmetric, v1. Most such files leave the output head in 16 bits (``packed_head`` False)."""
    group = shape.group

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "qweight": _words(k // 8, n, generator),
            "qzeros": torch.full((k // group, n // 8), _SYMMETRIC_V1, dtype=torch.int32),
            "scales": torch.full((k // group, n), _scale(k), dtype=torch.float16),
            "g_idx": torch.arange(k, dtype=torch.int32) // group,
        }

    stated = {"bits": 4, "group_size": group, "desc_act": False, "sym": True, "lm_head": packed_head}
    quantisation = {"quant_method": "gptq", "checkpoint_format": "gptq", **stated}
    name = f"gptq-g{group}" if packed_head else f"gptq-g{group}-head16"
    return _folder(shape, root, name, quantisation, module, packed_head)


def awq_folder(shape: Shape, root: Path) -> Path:
    """AWQ 4-bit, with zero-points."""
    group = shape.group

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "qweight": _words(k, n // 8, generator),
            "qzeros": _words(k // group, n // 8, generator),
            "scales": torch.full((k // group, n), _scale(k), dtype=torch.float16),
        }

    stated = {"bits": 4, "group_size": group, "zero_point": True, "version": "gemm", "modules_to_not_convert": None}
    return _folder(shape, root, f"awq-g{group}", {"quant_method": "awq", **stated}, module)


def compressed_folder(shape: Shape, root: Path) -> Path:
    """compressed-tensors, 4-bit, symmetric, pack-quantized."""
    group = shape.group

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "weight_packed": _words(n, k // 8, generator),
            "weight_scale": torch.full((n, k // group), _scale(k), dtype=torch.bfloat16),
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
    return _folder(shape, root, f"compressed-g{group}", quantisation, module)


def nf4_folder(shape: Shape, root: Path) -> Path:
    """bitsandbytes NF4 in blocks of 64."""

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [n, k]}
        return {
            "weight": _bytes(n * k // 2, generator)[:, None],
            "weight.absmax": torch.full((n * k // 64,), _scale(k) * 8),
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
    return _folder(shape, root, "nf4", quantisation, module)


def int8_folder(shape: Shape, root: Path) -> Path:
    """bitsandbytes LLM.int8."""

    def module(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            "weight": _bytes(n * k, generator).view(torch.int8).view(n, k),
            "SCB": torch.full((n,), _scale(k) * 8),
            "weight_format": torch.tensor(0, dtype=torch.uint8),
        }

    quantisation = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": []}
    return _folder(shape, root, "int8", quantisation, module)


def plain_folder(shape: Shape, root: Path) -> Path:
    """bfloat16."""
    return _folder(shape, root, "bf16", None, _plain)


def _plain(k: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
    return {"weight": torch.empty(n, k, dtype=torch.bfloat16).normal_(0, k**-0.5, generator=generator)}


def _folder(
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
        make = module if packed_head or linear != "lm_head" else _plain
        tensors |= {f"{linear}.{end}": tensor for end, tensor in make(k, n, generator).items()}
    for norm in shape.norms():
        value = SHARPNESS if norm == "model.norm" else 1.0
        tensors[f"{norm}.weight"] = torch.full((shape.hidden,), value, dtype=torch.bfloat16)
    table = torch.empty(shape.vocabulary, shape.hidden, dtype=torch.bfloat16)
    tensors["model.embed_tokens.weight"] = table.normal_(0, 1, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = shape.config() if quantisation is None else shape.config() | {"quantization_config": quantisation}
    (folder / "config.json").write_text(json.dumps(config))
    _write_tokenizer(folder, shape.vocabulary)
    complete.touch()
    return folder


def _words(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randint(-(2**31), 2**31 - 1, (rows, columns), dtype=torch.int32, generator=generator)


def _bytes(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


def _scale(k: int) -> float:
    return float(k**-0.5 / _SPREAD)


def _write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A word-level tokenizer with one made-up word per id: enough to turn generated ids into text."""
    words = {f"w{index}": index for index in range(vocabulary)}
    unused = dict.fromkeys(("normalizer", "post_processor", "decoder"))
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | unused))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 4096}))

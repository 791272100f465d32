"""Tiny packed checkpoints, and comparisons with transformers run on the weights that they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from engine.compute.layers.linear.base import Linear
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from tests.conformance.engine_support import Ours, relative

VOCABULARY = 160
TOLERANCE, ROUNDED = 1e-4, 0.06
"""Of float32, and of what bfloat16 explains."""
PROMPT = [3, 40, 77, 9, 120]
BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
FUSED = {"qkv": ("q_proj", "k_proj", "v_proj"), "output": ("o_proj",), "gate_up": ("gate_proj", "up_proj"),
         "down": ("down_proj",)}  # fmt: skip
Parts = tuple[dict[str, torch.Tensor], torch.Tensor]
"""A module's tensors by the ends of their names, and the weight [N, K] that they stand for."""


@torch.no_grad()
def save(
    folder: Path,
    pack: Callable[[str, torch.Tensor], Parts | None],
    stated: dict[str, Any] | None,
    family: str = "Llama",
    options: dict[str, Any] | None = None,
) -> transformers.PreTrainedModel:
    """Save a checkpoint, and return transformers' model with the weights that it stands for.

    ``pack(name, weight)`` is asked about every linear module; None leaves it dense. ``stated`` is quantization_config.
    """
    kind = getattr(transformers, f"{family}ForCausalLM")
    config = kind.config_class(**(BASE | (options or {})))
    model = kind(config).eval()
    tensors: dict[str, torch.Tensor] = {}
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.uniform_(-0.3, 0.3) if parameter.abs().max() == 0 else parameter.uniform_(0.5, 1.5)
        else:
            parameter.normal_(0, 0.1)
        parameter.copy_(parameter.half().float())
    packed = set()
    for name, module in model.named_modules():
        parts = pack(name, module.weight) if isinstance(module, torch.nn.Linear) else None
        if parts is not None:
            packed.add(f"{name}.weight")
            tensors |= {f"{name}.{key}": value.contiguous() for key, value in parts[0].items()}
            module.weight.copy_(parts[1])
    for name, parameter in model.named_parameters():
        if name not in packed:
            tensors[name] = parameter.detach().half()
    save_file(tensors, folder / "model.safetensors")
    values = json.loads(config.to_json_string(use_diff=False))
    values |= {"architectures": [f"{family}ForCausalLM"], "dtype": "float16"}
    if stated is not None:
        values["quantization_config"] = stated
    (folder / "config.json").write_text(json.dumps(values))
    return model


@torch.inference_mode()
def compare(ours: Ours, reference: transformers.PreTrainedModel) -> float:
    """The largest relative difference over texts of several lengths in one batch, some above the few-row limit."""
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in (1, 9, 65)]
    expected = [reference(torch.tensor([text])).logits[0] for text in texts]
    together = [relative(found, want) for found, want in zip(ours.logits(texts), expected, strict=True)]
    alone = [relative(ours.logits([text])[0], want) for text, want in zip(texts, expected, strict=True)]
    return max(together + alone)


@torch.inference_mode()
def likeliest(reference: transformers.PreTrainedModel, text: list[int]) -> list[int]:
    """The likeliest token after the prompt, and after each further token of a text that follows it."""
    logits = reference(torch.tensor([[*PROMPT, *text]])).logits[0, len(PROMPT) - 1 : -1]
    return [int(token) for token in logits.argmax(-1)]


def assert_exact(folder: Path, reference: transformers.PreTrainedModel, planned: bool = True) -> Ours:
    """The model of the folder, whose weights, sizes (where ``planned``), logits and text are right."""
    ours = Ours(folder)
    assert_same_weights(ours, reference)
    if planned:
        assert_planned(ours, folder)
    assert compare(ours, reference) <= TOLERANCE
    text = ours.greedy(PROMPT, 20)
    assert text == likeliest(reference, text)
    return ours


def assert_other_ways(folder: Path, reference: transformers.PreTrainedModel) -> None:
    """Expanded, and with torch's operators, in float32 and bfloat16."""
    expanded = Ours(folder, weights="16bit")
    assert {linear.kind for _, linear in expanded.model.linears()} == {"dense"}
    assert_same_weights(expanded, reference)
    for weights in ("4bit", "4bit_torch"):
        assert compare(Ours(folder, torch.bfloat16, weights), reference) <= ROUNDED
    assert compare(Ours(folder, torch.float32, "4bit_torch"), reference) <= TOLERANCE


def assert_title(folder: Path, reference: transformers.PreTrainedModel, title: str, counts: bool = True) -> Checkpoint:
    """The folder's checkpoint, which says what it is and, where it ``counts``, how many parameters it stands for."""
    opened = open_checkpoint(folder, need_tokenizer=False)
    assert opened.quantisation_title == title
    if counts:
        assert opened.parameters == sum(parameter.numel() for parameter in reference.parameters())
    return opened


def assert_same_weights(ours: Ours, reference: transformers.PreTrainedModel) -> None:
    """Every layer's weights in float32 are bit for bit those that the checkpoint stands for."""
    modules = dict(reference.named_modules())
    for name, linear in ours.model.linears():
        layer, _, last = name.rpartition(".")
        if name == "head":
            expected = modules["lm_head"].weight
        else:
            block = modules[f"model.{layer.replace('.attention', '').replace('.mlp', '')}"]
            parent = block.self_attn if last in ("qkv", "output") else block.mlp
            expected = torch.cat([getattr(parent, one).weight for one in FUSED[last]])
        assert torch.equal(linear.dequantised(torch.float32), expected), name


def assert_planned(ours: Ours, folder: Path) -> None:
    """What was planned from the headers is what is held, in bytes and in kinds."""
    checkpoint = open_checkpoint(folder, need_tokenizer=False)
    planned = checkpoint.planned(ours.model.dtype)

    def kinds(linears: Iterator[tuple[str, Linear]]) -> list[tuple[str, str, str, int]]:
        return [(name, linear.kind, linear.path, linear.storage_size()) for name, linear in linears]

    assert kinds(planned.linears()) == kinds(ours.model.linears())
    assert planned.storage_size() == ours.model.storage_size()

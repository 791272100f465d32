"""GPTQ checkpoints: our logits against transformers run on the weights that the packed ones stand for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from engine_support import Ours, relative
from gptq_packer import Packing, quantise
from safetensors.torch import save_file

VOCABULARY = 160
TOLERANCE = 1e-4
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


@dataclass(frozen=True)
class Case:
    name: str
    packing: Packing
    family: str = "Llama"
    options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    pack_head: bool = False
    skip: str = ""
    """Modules whose name ends so stay dense."""


CASES = [
    Case("v1", Packing()),
    Case("v1, format not stated", Packing(), config={"checkpoint_format": None}),
    Case("v2", Packing(version=2)),
    Case("v1 asymmetric", Packing(symmetric=False)),
    Case("v2 asymmetric", Packing(version=2, symmetric=False)),
    Case("v1 act-order", Packing(act_order=True)),
    Case("v2 asymmetric act-order", Packing(version=2, symmetric=False, act_order=True)),
    Case("act-order, unlike in q, k and v", Packing(act_order=True)),
    Case("g_idx missing", Packing(g_idx="missing")),
    Case("g_idx zero", Packing(g_idx="zero", symmetric=False)),
    Case("group 64", Packing(group=64)),
    Case("group 128 act-order", Packing(group=128, act_order=True)),
    Case("group 128, ragged", Packing(group=128), options={"intermediate_size": 160}),
    Case("group 128, ragged, act-order", Packing(group=128, act_order=True), options={"intermediate_size": 160}),
    Case("one group", Packing(group=-1)),
    Case("one group asymmetric, g_idx missing", Packing(group=-1, symmetric=False, g_idx="missing")),
    Case("biases", Packing(), family="Qwen2"),
    Case("biases act-order", Packing(act_order=True), family="Qwen2"),
    Case("head packed", Packing(), config={"lm_head": True}, pack_head=True),
    Case("o_proj skipped", Packing(), config={"dynamic": {r"-:.*o_proj": {}}}, skip="o_proj"),
    Case("v_proj skipped", Packing(), config={"dynamic": {r"-:.*v_proj": {}}}, skip="v_proj"),
    Case("qwen3", Packing(symmetric=False), family="Qwen3", options={"head_dim": 32}),
]


def make(case: Case, folder: Path) -> transformers.PreTrainedModel:
    """Save a packed checkpoint, and return transformers' model with the weights that it stands for."""
    torch.manual_seed(sum(case.name.encode()))
    rng = np.random.default_rng(3)
    config = getattr(transformers, f"{case.family}Config")(**(BASE | case.options))
    model = getattr(transformers, f"{case.family}ForCausalLM")(config).eval()
    tensors: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(-0.3, 0.3) if parameter.abs().max() == 0 else parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.1)
            parameter.copy_(parameter.half().float())
        for name, module in model.named_modules():
            packs = isinstance(module, torch.nn.Linear) and (case.pack_head or name != "lm_head")
            if not packs or (case.skip and name.endswith(case.skip)):
                continue
            # Modules that read the same input share their order, as GPTQ makes them; "unlike" orders cannot be fused.
            fresh = case.packing.act_order and "unlike" not in case.name
            packed, stands_for = quantise(
                module.weight.numpy(), case.packing, np.random.default_rng(1) if fresh else rng
            )
            tensors |= {f"{name}.{key}": torch.from_numpy(value) for key, value in packed.items()}
            module.weight.copy_(torch.from_numpy(stands_for))
        packed_names = {name.rsplit(".", 1)[0] for name in tensors}
        for name, parameter in model.named_parameters():
            if not (name.endswith(".weight") and name.rsplit(".", 1)[0] in packed_names):
                tensors[name] = parameter.detach().half()
    save_file(tensors, folder / "model.safetensors")
    stated = {
        "quant_method": "gptq", "bits": 4, "group_size": case.packing.group, "desc_act": case.packing.act_order,
        "sym": case.packing.symmetric, "checkpoint_format": "gptq" if case.packing.version == 1 else "gptq_v2",
    } | case.config  # fmt: skip
    values = json.loads(config.to_json_string(use_diff=False))
    values |= {"architectures": [f"{case.family}ForCausalLM"], "dtype": "float16"}
    if case.name == "v2":
        stated.pop("quant_method")
        (folder / "quantize_config.json").write_text(json.dumps(stated))
    else:
        values["quantization_config"] = stated
    (folder / "config.json").write_text(json.dumps(values))
    return model


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@torch.inference_mode()
def compare(ours: Ours, reference: transformers.PreTrainedModel) -> float:
    """The largest relative difference over texts of several lengths in one batch, some above the few-row limit."""
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in (1, 9, 65)]
    expected = [reference(torch.tensor([text])).logits[0] for text in texts]
    together = [relative(found, want) for found, want in zip(ours.logits(texts), expected, strict=True)]
    alone = [relative(ours.logits([text])[0], want) for text, want in zip(texts, expected, strict=True)]
    return max(together + alone)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logits_are_those_of_the_dequantised_weights(case: Case, tmp_path: Path) -> None:
    reference = make(case, tmp_path)
    ours = Ours(tmp_path)
    assert compare(ours, reference) <= TOLERANCE
    kinds = {name.split(".")[-1]: linear.kind for name, linear in ours.model.linears()}
    assert kinds["down"] == "int4"
    assert kinds["qkv"] == ("concatenated" if case.skip == "v_proj" or "unlike" in case.name else "int4")
    assert kinds["head"] == ("int4" if case.pack_head else "dense")
    assert kinds["output"] == ("dense" if case.skip == "o_proj" else "int4")


@pytest.mark.parametrize("case", [case for case in CASES if case.packing.group != -1], ids=lambda case: case.name)
def test_weights_expanded_to_16_bits_stand_for_the_same(case: Case, tmp_path: Path) -> None:
    reference = make(case, tmp_path)
    ours = Ours(tmp_path, weights="16bit")
    assert {linear.kind for _, linear in ours.model.linears()} == {"dense"}
    assert compare(ours, reference) <= TOLERANCE


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bfloat16_paths_agree_with_the_definition(case: Case, tmp_path: Path) -> None:
    """Torch's operator and dequantise-and-multiply, each within what bfloat16 rounding of scales and sums explains."""
    reference = make(case, tmp_path)
    ours = Ours(tmp_path, torch.bfloat16)
    assert compare(ours, reference) <= 0.06
    invariant = Ours(tmp_path, torch.bfloat16, invariant=True)
    assert compare(invariant, reference) <= 0.06
    paths = {linear.path for _, linear in ours.model.linears() if linear.kind == "int4"}
    assert paths == {"torch int4 matmul on CPU"}

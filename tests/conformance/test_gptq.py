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

from engine.compute.layers.linear.blocks import operator_columns
from tests.conformance.engine_support import Ours
from tests.conformance.gptq_packer import Packing, quantise
from tests.conformance.packed_support import (
    ROUNDED,
    TOLERANCE,
    Parts,
    assert_exact,
    assert_planned,
    assert_same_weights,
    assert_title,
    compare,
    save,
)

pytestmark = pytest.mark.usefixtures("one_thread")
RAGGED = {"intermediate_size": 160}


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
    Case("group 128, ragged", Packing(group=128), options=RAGGED),
    Case("group 128, ragged, act-order", Packing(group=128, act_order=True), options=RAGGED),
    Case("one group", Packing(group=-1)),
    Case("one group asymmetric, g_idx missing", Packing(group=-1, symmetric=False, g_idx="missing")),
    Case("biases", Packing(), family="Qwen2"),
    Case("biases act-order", Packing(act_order=True), family="Qwen2"),
    Case("head packed", Packing(), config={"lm_head": True}, pack_head=True),
    Case("o_proj skipped", Packing(), config={"dynamic": {r"-:.*o_proj": {}}}, skip="o_proj"),
    Case("v_proj skipped", Packing(), config={"dynamic": {r"-:.*v_proj": {}}}, skip="v_proj"),
    *(Case(f"{b} bits", Packing(bits=b)) for b in (2, 3, 8)),
    *(Case(f"{b} bits v2 asymmetric", Packing(2, False, bits=b)) for b in (2, 3, 8)),
    *(Case(f"{b} bits v1 asymmetric act-order", Packing(1, False, act_order=True, bits=b)) for b in (2, 3, 8)),
    *(Case(f"{b} bits one group, ragged", Packing(group=-1, bits=b), options=RAGGED) for b in (2, 3, 8)),
    *(Case(f"{b} bits group 128, ragged", Packing(group=128, bits=b), options=RAGGED) for b in (2, 3, 8)),
    Case("3 bits, biases, v_proj skipped", Packing(bits=3), family="Qwen2", skip="v_proj"),
    Case("8 bits act-order, unlike in q, k and v", Packing(act_order=True, bits=8)),
    Case(
        "AutoRound",
        Packing(g_idx="missing"),
        config={
            "quant_method": "auto-round",
            "checkpoint_format": None,
            "desc_act": None,
            "autoround_version": "0.9.2",
        },
    ),
    Case("qwen3", Packing(symmetric=False), family="Qwen3", options={"head_dim": 32}),
]


def make(case: Case, folder: Path) -> transformers.PreTrainedModel:
    """Save a packed checkpoint, and return transformers' model with the weights that it stands for."""
    rng = np.random.default_rng(3)

    def pack(name: str, weight: torch.Tensor) -> Parts | None:
        if (name == "lm_head" and not case.pack_head) or (case.skip and name.endswith(case.skip)):
            return None
        # Modules that read the same input share their order, as GPTQ makes them; "unlike" orders cannot be fused.
        fresh = case.packing.act_order and "unlike" not in case.name
        tensors, stands_for = quantise(weight.numpy(), case.packing, np.random.default_rng(1) if fresh else rng)
        return {key: torch.from_numpy(value) for key, value in tensors.items()}, torch.from_numpy(stands_for)

    stated = {
        "quant_method": "gptq", "bits": case.packing.bits, "group_size": case.packing.group,
        "desc_act": case.packing.act_order, "sym": case.packing.symmetric,
        "checkpoint_format": "gptq" if case.packing.version == 1 else "gptq_v2",
    } | case.config  # fmt: skip
    aside = case.name == "v2"
    if aside:
        stated.pop("quant_method")
        (folder / "quantize_config.json").write_text(json.dumps(stated))
    torch.manual_seed(sum(case.name.encode()))
    return save(folder, pack, None if aside else stated, case.family, case.options)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_weights_logits_and_text(case: Case, tmp_path: Path) -> None:
    reference = make(case, tmp_path)
    # Which groups an order leaves in one piece, and that q, k and v do not share it, only the tensors' values tell.
    planned = not (case.packing.act_order and ("unlike" in case.name or case.options))
    ours = assert_exact(tmp_path, reference, planned)
    packed = f"int{case.packing.bits}"
    kinds = {name.split(".")[-1]: linear.kind for name, linear in ours.model.linears()}
    assert kinds["down"] == packed
    assert kinds["qkv"] == ("concatenated" if case.skip == "v_proj" or "unlike" in case.name else packed)
    assert kinds["head"] == (packed if case.pack_head else "dense")
    assert kinds["output"] == ("dense" if case.skip == "o_proj" else packed)


RULES: dict[str, dict[str, Any]] = {
    "GPTQModel": {
        "quant_method": "gptq",
        "desc_act": False,
        "dynamic": {"+:.*v_proj": {"bits": 8}, ".*down_proj": {"bits": 3, "group_size": 64}, "-:.*o_proj": {}},
    },
    "AutoRound": {
        "quant_method": "auto-round",
        "packing_format": "auto_round:auto_gptq",
        "data_type": "int",
        "extra_config": {
            f"model.layers.{layer}.{module}": rule
            for layer in range(2)
            for module, rule in {
                "self_attn.v_proj": {"bits": 8},
                "mlp.down_proj": {"bits": 3, "group_size": 64},
                "self_attn.o_proj": {"bits": 16, "data_type": "float"},
            }.items()
        },
    },
}


@pytest.mark.parametrize("by", list(RULES))
def test_modules_may_differ_in_bits_and_groups(by: str, tmp_path: Path) -> None:
    """Rules for some modules; the tensors show which module has which."""

    def packing(name: str) -> Packing | None:
        if name.endswith("v_proj"):
            return Packing(bits=8)
        if name.endswith("down_proj"):
            return Packing(bits=3, group=64)
        return None if name.endswith("o_proj") or name == "lm_head" else Packing()

    stated = {"bits": 4, "group_size": 32, "sym": True} | RULES[by]
    rng = np.random.default_rng(1)

    def pack(name: str, weight: torch.Tensor) -> Parts | None:
        chosen = packing(name)
        if chosen is None:
            return None
        tensors, stands_for = quantise(weight.numpy(), chosen, rng)
        return {key: torch.from_numpy(value) for key, value in tensors.items()}, torch.from_numpy(stands_for)

    reference = save(tmp_path, pack, stated)
    ours = Ours(tmp_path)
    assert_same_weights(ours, reference)
    assert_planned(ours, tmp_path)
    assert compare(ours, reference) <= TOLERANCE
    assert_title(tmp_path, reference, "GPTQ 3/4/8-bit, groups of 32")


OFTEN = {
    "v1", "v2 asymmetric act-order", "act-order, unlike in q, k and v", "group 128, ragged", "biases act-order",
    "one group asymmetric, g_idx missing", "head packed", "v_proj skipped", "2 bits v2 asymmetric",
    "3 bits v1 asymmetric act-order", "3 bits, biases, v_proj skipped", "8 bits group 128, ragged",
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=() if case.name in OFTEN else pytest.mark.long) for case in CASES]
)
def test_other_ways_to_hold_them(case: Case, tmp_path: Path) -> None:
    """Expanded, native code, torch's operator and dequantise-and-multiply."""
    reference = make(case, tmp_path)
    if case.packing.group != -1:
        expanded = Ours(tmp_path, weights="16bit")
        assert {linear.kind for _, linear in expanded.model.linears()} == {"dense"}
        assert compare(expanded, reference) <= TOLERANCE
    for invariant in (False, True):
        assert compare(Ours(tmp_path, torch.bfloat16, invariant=invariant), reference) <= ROUNDED
    torch_only = Ours(tmp_path, torch.bfloat16, weights="4bit_torch")
    assert compare(torch_only, reference) <= ROUNDED
    paths = {linear.path for _, linear in torch_only.model.linears() if linear.kind == "int4"}
    operator = operator_columns() is not None
    assert paths <= {"torch int4 matmul on CPU" if operator else "dequantise and multiply"}

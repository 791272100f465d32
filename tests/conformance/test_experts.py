"""Checkpoints of packed experts: gpt-oss' MXFP4, read by transformers too, and GPTQ's modules of each expert."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from engine.base.errors import CheckpointError
from engine.compute.batch import SequenceRows
from engine.compute.layers.linear.ggml_blocks import MXFP4, dequantise
from engine.formats.open import open_checkpoint
from engine.formats.quantised.stacked import mxfp4_rows
from engine.loading.memory.estimate import SCRATCH_BYTES, activation_bytes
from tests.conformance.engine_support import Ours, relative
from tests.conformance.expert_models import FAMILIES, save_gpt_oss, save_gptq
from tests.conformance.gptq_packer import Packing
from tests.conformance.packed_support import (
    TOLERANCE,
    assert_planned,
    compare,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@torch.inference_mode()
def assert_near(ours: Ours, reference: transformers.PreTrainedModel) -> None:
    """Most rows within what bfloat16 explains: rounding may tip one between two experts, and who attends to it."""
    texts = torch.randint(3, 160, (4, 50), generator=torch.Generator().manual_seed(6))
    found, expected = torch.stack(ours.logits(texts.tolist())).float(), reference(texts).logits
    errors = (found - expected).abs().amax(2).flatten() / expected.abs().max()
    assert float(errors.median()) <= 0.03


def test_every_code_and_exponent_is_that_of_transformers() -> None:
    exponents = torch.arange(255, dtype=torch.uint8)
    blocks = torch.randint(0, 256, (255, 3, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    blocks[:, 0] = torch.arange(16) * 16 + torch.arange(16).flip(0)  # every code in either nibble
    scales = exponents[:, None].repeat(1, 3)
    expected = convert_moe_packed_tensors(blocks[None], scales[None], dtype=torch.float32)[0]
    found = dequantise(MXFP4, mxfp4_rows(blocks, scales))
    assert torch.equal(found, expected.t())
    assert found[127, :32].unique().tolist() == [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]


@pytest.mark.parametrize("weights", ["4bit", "4bit_torch", "16bit"])
def test_gpt_oss_packed(weights: str, tmp_path: Path) -> None:
    reference = save_gpt_oss(tmp_path)
    ours = Ours(tmp_path, weights=weights)
    kinds = {name.split(".")[-1]: linear.kind for name, linear in ours.model.linears()}
    assert kinds == {"qkv": "dense", "output": "dense", "router": "dense", "head": "dense",
                     **dict.fromkeys(("gate_up", "down"), "dense" if weights == "16bit" else "MXFP4")}  # fmt: skip
    for layer, theirs in enumerate(reference.model.layers):
        mlp = ours.model.layers[layer].mlp
        for expert in range(4):
            gate_up = theirs.mlp.experts.gate_up_proj[expert].t()
            in_order = torch.cat((gate_up[::2], gate_up[1::2]))
            assert torch.equal(mlp.gate_up[expert].dequantised(torch.float32), in_order)
            assert torch.equal(mlp.down[expert].dequantised(torch.float32), theirs.mlp.experts.down_proj[expert].t())
    assert compare(ours, reference) <= TOLERANCE
    if weights == "4bit":
        assert_planned(ours, tmp_path)
        assert compare(Ours(tmp_path, invariant=True), reference) <= TOLERANCE
        assert_near(Ours(tmp_path, torch.bfloat16), reference)


def test_what_a_gpt_oss_says_of_itself(tmp_path: Path) -> None:
    reference = save_gpt_oss(tmp_path)
    checkpoint = open_checkpoint(tmp_path, need_tokenizer=False)
    assert checkpoint.quantisation_title == "MXFP4"
    assert checkpoint.packed
    assert checkpoint.parameters == sum(parameter.numel() for parameter in reference.parameters())


def test_half_of_the_experts_are_read_for_a_row(tmp_path: Path) -> None:
    save_gpt_oss(tmp_path)
    model = Ours(tmp_path).model
    experts = sum(linear.storage_size() for name, linear in model.linears() if ".experts." in name)
    others = sum(linear.storage_size() for name, linear in model.linears() if ".experts." not in name)
    assert experts == 2 * 4 * (3 * 96 * 64 // 32 * 17 + 4 * (2 * 96 + 64))
    norms = model.norm.storage_size() + sum(layer.storage_size() for layer in model.layers)
    assert model.bytes_read_per_step() == others + norms + experts // 2
    assert model.storage_size() > experts + others + norms


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("gate_up_proj_blocks", lambda t: t[:, :, :1], "gate_up_proj_blocks has the shape"),
        ("gate_up_proj_scales", lambda t: t[:3].clone(), "gate_up_proj_scales has the shape"),
        ("down_proj_scales", lambda t: t.float(), "down_proj_scales is stored as float32"),
        ("down_proj_scales", None, "lack the tensor model.layers.0.mlp.experts.down_proj_scales"),
        ("down_proj_bias", None, "lack the tensor model.layers.0.mlp.experts.down_proj_bias"),
        ("down_proj_blocks", None, "lack the tensor model.layers.0.mlp.experts.0.down_proj.weight"),
    ],
)
def test_damaged_stacks_are_refused(name: str, change, said: str, tmp_path: Path) -> None:
    save_gpt_oss(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    key = f"model.layers.0.mlp.experts.{name}"
    if change is None:
        del tensors[key]
    else:
        tensors[key] = change(tensors[key]).contiguous()
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=said):
        open_checkpoint(tmp_path, need_tokenizer=False)


def test_packed_stacks_that_no_configuration_explains_are_refused(tmp_path: Path) -> None:
    save_gpt_oss(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    del config["quantization_config"]
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"packed as MXFP4, and config\.json has no quantization_config"):
        open_checkpoint(tmp_path, need_tokenizer=False)


# --- modules of each expert ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", [Packing(), Packing(symmetric=False, act_order=True)], ids=["plain", "act-order"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gptq_experts(family: str, packing: Packing, tmp_path: Path) -> None:
    reference = save_gptq(tmp_path, family, packing)
    ours = Ours(tmp_path)
    kinds = {linear.kind for name, linear in ours.model.linears() if ".experts." in name}
    assert kinds == {"int4"}
    assert_planned(ours, tmp_path)
    assert compare(ours, reference) <= TOLERANCE
    assert_near(Ours(tmp_path, torch.bfloat16), reference)
    assert compare(Ours(tmp_path, weights="16bit"), reference) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_experts_give_equal_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    """The same row alone, in chunks and among others, through kernels that multiply packed weights."""
    for number, save in enumerate((save_gpt_oss, lambda folder: save_gptq(folder, "Mixtral", Packing()))):
        folder = tmp_path / str(number)
        folder.mkdir()
        save(folder)
        ours = Ours(folder, dtype, invariant=True)
        generator = torch.Generator().manual_seed(2)
        texts = [torch.randint(3, 160, (length,), generator=generator).tolist() for length in (1, 9, 40)]
        for text, together in zip(texts, ours.logits(texts), strict=True):
            assert torch.equal(ours.logits([text])[0], together)
            for chunk in (1, 7, 16):
                assert torch.equal(ours.chunked(text, chunk, sequence=5), together)


def test_activations_of_experts_are_counted(tmp_path: Path) -> None:
    """In the widest layer: one plain layer's MLP where there is one, the experts otherwise."""
    save_gptq(tmp_path, "Mixtral", Packing())
    config = open_checkpoint(tmp_path, need_tokenizer=False).config
    rows = activation_bytes(config, torch.bfloat16, 10, 0) - SCRATCH_BYTES
    copied = 4 * 96  # of the widest input of a product, in float32
    assert rows == 10 * (2 * (3 * 64 + 3 * 96 + 6 * 64) + copied)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drafted_trees_beside_prompts_and_single_rows(dtype: torch.dtype, tmp_path: Path) -> None:
    """Each path of a tree is as its chain of tokens, past the window and with sinks, whatever else the step has."""
    save_gpt_oss(tmp_path)
    texts = torch.randint(3, 160, (3, 40), generator=torch.Generator().manual_seed(4)).tolist()
    prompt, tree, parents = texts[0][:20], texts[0][20:26], [-1, 0, 0, 1, 2, -1]
    paths = [[0, 1, 3], [0, 2, 4], [5]]
    for invariant in (False, True):
        ours = Ours(tmp_path, dtype, invariant=invariant)
        chains = [ours.logits([prompt + [tree[i] for i in path]])[0][len(prompt) :] for path in paths]
        ours.chunked(prompt, 64)
        ours.chunked(texts[1], 64, sequence=1)
        rows = [
            SequenceRows(tree, len(prompt), ours.pages(0), len(tree), parents),
            SequenceRows([7], 40, ours.pages(1), 1),
            SequenceRows(texts[2], 0, ours.pages(2), 40),
        ]
        found = ours.runner.forward(rows).logits
        for path, chain in zip(paths, chains, strict=True):
            if invariant:
                assert torch.equal(found[path], chain)
            elif dtype == torch.float32:
                assert relative(found[path], chain) <= 1e-5

"""Opening and loading checkpoints of experts: what planning costs, and stacks that are quantised while loading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.base.errors import CheckpointError
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.formats.quantised.quantise import Method, Module, Quantiser
from engine.formats.source import CheckpointSource
from engine.formats.times import LoadTimes
from tests.conformance.engine_support import Ours, relative
from tests.conformance.expert_models import GPT_OSS, save_gptq
from tests.conformance.gptq_packer import Packing
from tests.conformance.packed_support import (
    assert_planned,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def save_plain_gpt_oss(folder: Path) -> None:
    torch.manual_seed(3)
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**GPT_OSS))
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if name.endswith(("sinks", "norm.weight")) else 0.0, 0.15)
    model.to(torch.bfloat16).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["dtype"]  # as in OpenAI's own
    (folder / "config.json").write_text(json.dumps(config))


def test_planning_makes_no_layer_for_each_expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But every expert is checked, and one that is unlike the others counts for what it is."""
    save_gptq(tmp_path, "Mixtral", Packing())
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    stem = "model.layers.1.block_sparse_moe.experts.2.w2"
    for part in ("qweight", "qzeros", "scales", "g_idx"):
        tensors.pop(f"{stem}.{part}", None)
    save_file(tensors | {f"{stem}.weight": torch.ones(64, 96)}, file)
    made = []
    layer = CheckpointSource._layer
    monkeypatch.setattr(CheckpointSource, "_layer", lambda self, *a: made.append(a) or layer(self, *a))
    checkpoint = open_checkpoint(tmp_path, need_tokenizer=False)
    others = 2 * 3 + 1  # qkv, output, router; the head
    assert len(made) == others + 2 * 2 + 2
    made.clear()
    held = checkpoint.resident_bytes(torch.bfloat16)
    assert checkpoint.resident_bytes(torch.bfloat16) == held
    assert len(made) == others + 2 * 2 + 2
    assert_planned(Ours(tmp_path), tmp_path)
    name = "model.layers.1.block_sparse_moe.experts.3.w1.scales"
    save_file(tensors | {f"{stem}.weight": torch.ones(64, 96), name: tensors[name][:1].clone()}, file)
    with pytest.raises(CheckpointError, match=f"{name} has the shape"):
        open_checkpoint(tmp_path, need_tokenizer=False)


@torch.no_grad()
@pytest.mark.parametrize("method", ["nf4", "int4", "int8"])
def test_plain_stacks_are_quantised(method: Method, tmp_path: Path) -> None:
    """As the same matrix would be as a module of its own; routers are not."""
    save_plain_gpt_oss(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    ours, plain = Ours(tmp_path, quantise=method), Ours(tmp_path)
    kinds = {name.split(".")[-1]: linear.kind for name, linear in ours.model.linears()}
    assert kinds["router"] == kinds["head"] == "dense"
    assert kinds["gate_up"] == kinds["down"] == kinds["qkv"] != "dense"
    opened = open_checkpoint(tmp_path, need_tokenizer=False).quantised(method)
    assert opened.resident_bytes(torch.float32) == ours.model.storage_size() < 0.6 * plain.model.storage_size()
    assert opened.quantisation_title.endswith("quantised from bf16 while loading")
    mlp = ours.model.layers[1].mlp
    stacks = [tensors[f"model.layers.1.mlp.experts.{name}"] for name in ("gate_up_proj", "down_proj")]
    for layers, stack in zip((mlp.gate_up, mlp.down), stacks, strict=True):
        matrix = stack[3].t().float().contiguous()
        matrix = torch.cat((matrix[::2], matrix[1::2])) if layers is mlp.gate_up else matrix
        packed = Quantiser(method, torch.device("cpu")).packed(Module("m", *matrix.shape, lambda m=matrix: m))
        assert packed is not None
        expected = torch.empty(matrix.shape)
        packed.layout.write(packed.read(), expected)
        torch.testing.assert_close(layers[3].dequantised(torch.float32), expected, rtol=1e-5, atol=1e-6)
        assert relative(expected, matrix) <= 0.2
    assert mlp.gate_up[3].bias is not None


def test_quantised_stacks_are_kept_and_timed(tmp_path: Path) -> None:
    """Each expert is kept under a name of its own, and its packing counts as that."""
    save_plain_gpt_oss(tmp_path)
    found = []
    for _ in range(2):
        opened = open_checkpoint(tmp_path, need_tokenizer=False).quantised("nf4")
        kept, times, cpu = opened.kept(tmp_path / "kept", torch.device("cpu")), LoadTimes(), torch.device("cpu")
        model = load_model(opened, cpu, torch.float32, kept=kept, times=times)
        found.append([linear.dequantised(torch.float32) for _, linear in model.linears()])
        assert kept.read == ("quantising" not in times.seconds) == (len(found) == 2)
        assert times.seconds["packing"] > 0
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

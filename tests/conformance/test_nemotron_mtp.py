"""Nemotron 3's multi-token layer, two of its layers after a projection, against transformers' blocks of the family."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers.masking_utils import create_causal_mask

from engine.compute.models.heads.mtp import QWEN
from tests.conformance.engine_support import reads_like
from tests.conformance.families import BASE, NEMOTRON_EXPERTS, Case, make
from tests.conformance.hybrid_models import SHAPE, write_states
from tests.conformance.texts import PROMPTS, SAMPLINGS
from tests.kit.hosts import Host

ATTENTION, EXPERTS = 3, 4
"""Layers of each kind in the model; copies of them with other numbers are the multi-token layer's."""


def add_layer(folder: Path, size: int = BASE["hidden_size"]) -> None:
    """What the checkpoints have under ``mtp.layers``, as vLLM's nemotron_h_mtp.py reads it."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    torch.manual_seed(2)
    for layer, copy in ((ATTENTION, 0), (EXPERTS, 1)):
        before = next(name for name in tensors if f"layers.{layer}." in name).split(f"layers.{layer}.")[0]
        for name in [name for name in tensors if name.startswith(f"{before}layers.{layer}.")]:
            other = f"mtp.layers.{copy}.{name.removeprefix(f'{before}layers.{layer}.')}"
            tensors[other] = tensors[name] * (1 + 0.5 * torch.rand(tensors[name].shape))
    tensors["mtp.layers.0.eh_proj.weight"] = 0.2 * torch.randn(size, 2 * size)
    for norm in ("0.enorm", "0.hnorm", "1.final_layernorm"):
        tensors[f"mtp.layers.{norm}.weight"] = 0.5 + torch.rand(size)
    save_file(tensors, file, {"format": "pt"})
    config = folder / "config.json"
    stated = json.loads(config.read_text()) | {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}
    config.write_text(json.dumps(stated))


def block_of(theirs: transformers.PreTrainedModel, folder: Path, layer: int, copy: int) -> torch.nn.Module:
    """A block of the family with the multi-token layer's weights."""
    block, prefix = type(theirs.model.layers[layer])(theirs.config, layer), f"mtp.layers.{copy}."
    stored = {name.removeprefix(prefix): tensor for name, tensor in load_file(folder / "model.safetensors").items()
              if name.startswith(prefix)}  # fmt: skip
    own = {}
    for name in block.state_dict():
        kind = name.removeprefix("mixer.experts.").removesuffix("_proj")
        if name.startswith("mixer.experts.") and name not in stored:
            each = (stored[f"mixer.experts.{expert}.{kind}_proj.weight"] for expert in range(8))
            own[name] = torch.stack(list(each))
        else:
            own[name] = stored[name]
    block.load_state_dict(own)
    return block.eval()


@pytest.mark.parametrize("options", [{}, {"moe_latent_size": 24}], ids=["Nano", "Super"])
@torch.inference_mode()
def test_the_layer_is_made_of_the_familys_blocks(tmp_path: Path, options: dict[str, int]) -> None:
    theirs = make(Case("nemotron", "NemotronH", NEMOTRON_EXPERTS | options), tmp_path)
    add_layer(tmp_path)
    text = torch.randint(3, 90, (1, 30), generator=torch.Generator().manual_seed(1))
    states, weights = theirs.model(text).last_hidden_state, load_file(tmp_path / "model.safetensors")

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        weight = weights[f"mtp.layers.{name}.weight"]
        return F.rms_norm(x, weight.shape, weight, theirs.config.layer_norm_epsilon)

    tokens = theirs.get_input_embeddings()(text[:, 1:])
    joined = torch.cat((normed(tokens, "0.enorm"), normed(states[:, :29], "0.hnorm")), -1)
    x = joined @ weights["mtp.layers.0.eh_proj.weight"].t()
    places = torch.arange(29)[None]
    mask = create_causal_mask(config=theirs.config, inputs_embeds=x, attention_mask=None, past_key_values=None,
                              position_ids=places)  # fmt: skip
    x = block_of(theirs, tmp_path, ATTENTION, 0)(x, attention_mask=mask, position_ids=places)
    read = normed(block_of(theirs, tmp_path, EXPERTS, 1)(x), "1.final_layernorm")
    reads_like(tmp_path, QWEN, text, states, read, theirs.lm_head(read))


@pytest.mark.slow
def test_it_drafts_and_the_text_is_the_same(tmp_path: Path) -> None:
    """Answers that give way, in a model whose states go back where a draft was wrong."""
    folder = tmp_path / "model"
    own = {"hybrid_override_pattern": "M-M*EM-", "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2,
           "ssm_state_size": 16, "n_routed_experts": 8, "moe_intermediate_size": 32, "head_dim": 16,
           "moe_shared_expert_intermediate_size": 40}  # fmt: skip
    write_states(folder, "NemotronH", **own)
    add_layer(folder, SHAPE["hidden_size"])
    host, sampling = Host(folder), SAMPLINGS["seeded"]
    expected = host.plain(PROMPTS, sampling)
    for length in (1, 4):
        ids = host.ask(PROMPTS, sampling, speculation="mtp", draft_length=length)
        host.run(160, random.Random(length))
        assert host.of(ids) == expected
        assert "mtp" in host.sources(ids)

"""Multi-token layers that are numbered with the model's own (DeepSeek-V3, GLM-4.5, GLM-4.7), against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from engine.compute.models.heads.mtp import QWEN, deepseek
from tests.conformance.engine_support import reads_like
from tests.conformance.families import BASE, GLM_LITE, MELLUM, MLA, SIGMOID, Case, make

FAMILIES = {
    "Glm4Moe": SIGMOID | {"head_dim": 16, "first_k_dense_replace": 1, "use_qk_norm": True},
    "Glm4MoeLite": GLM_LITE | {"q_lora_rank": 20},
    "DeepseekV3": MLA | SIGMOID | {"first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
}


def add_layer(folder: Path) -> None:
    """A layer of other numbers than the last one's, and what joins state and token."""
    file = folder / "model.safetensors"
    tensors, layers, size = load_file(file), BASE["num_hidden_layers"], BASE["hidden_size"]
    torch.manual_seed(2)
    before, prefix = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    for name in [name for name in tensors if name.startswith(before)]:
        tensors[prefix + name.removeprefix(before)] = tensors[name] * (1 + 0.5 * torch.rand(tensors[name].shape))
    tensors[f"{prefix}eh_proj.weight"] = 0.2 * torch.randn(size, 2 * size)
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"{prefix}{norm}.weight"] = 0.5 + torch.rand(size)
    save_file(tensors, file, {"format": "pt"})


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_the_layer_is_that_of_transformers(tmp_path: Path, family: str) -> None:
    make(Case(family, family, FAMILIES[family]), tmp_path)
    add_layer(tmp_path)
    kind = getattr(transformers, f"{family}ForCausalLM")
    theirs = kind.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    theirs.config.num_mtp_layers, theirs.config.mtp_mlp_layer_types = 1, ["sparse"]
    theirs._keys_to_ignore_on_load_unexpected = [r"model\.layers\.3\."]
    layer, cache = MtpModel.from_pretrained(theirs), MtpCache(config=theirs.config.get_mtp_config())
    text = torch.randint(3, 90, (1, 30), generator=torch.Generator().manual_seed(1))
    states = theirs.model(text).last_hidden_state
    read = layer.forward_layer(0, states[:, :29], torch.arange(29)[None], cache, input_ids=text[:, 1:])
    reads_like(tmp_path, deepseek(3), text, states, read, theirs.lm_head(read))


@torch.inference_mode()
def test_mellums_layer_has_a_window(tmp_path: Path) -> None:
    """And the rotation of layers with one; its names are Qwen3-Next's."""
    make(Case("mellum", "Mellum", MELLUM | {"num_mtp_layers": 1}), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors, size = load_file(file), BASE["hidden_size"]
    torch.manual_seed(2)
    for name in [name for name in tensors if name.startswith("model.layers.2.")]:
        copy = name.replace("model.layers.2.", "mtp.layers.0.")
        tensors[copy] = tensors[name] * (1 + 0.5 * torch.rand(tensors[name].shape))
    tensors["mtp.fc.weight"] = 0.2 * torch.randn(size, 2 * size)
    for norm in ("pre_fc_norm_hidden", "pre_fc_norm_embedding", "norm"):
        tensors[f"mtp.{norm}.weight"] = 0.5 + torch.rand(size)
    save_file(tensors, file, {"format": "pt"})
    theirs = transformers.MellumForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    layer, cache = MtpModel.from_pretrained(theirs.eval()), MtpCache(config=theirs.config.get_mtp_config())
    text = torch.randint(3, 90, (1, 30), generator=torch.Generator().manual_seed(1))
    states = theirs.model(text).last_hidden_state
    read = layer.forward_layer(0, states[:, :29], torch.arange(29)[None], cache, input_ids=text[:, 1:])
    reads_like(tmp_path, QWEN, text, states, read, theirs.lm_head(read))

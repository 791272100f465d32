"""A checkpoint with a multi-token layer of its own, loaded as any other: the layer drafts, and the text stays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.compute.models.heads.mtp import MIMO
from tests.conformance.texts import PROMPTS, SAMPLINGS, VARIANTS, cases
from tests.kit.checkpoints import quiet, write_llama
from tests.kit.hosts import Host

WIDTH = 128


def write_mimo(folder: Path) -> None:
    """A target whose next token depends mostly on the last one, and a layer beside it that passes that token on."""
    write_llama(folder, hidden_size=WIDTH)
    quiet(folder)
    tensors = load_file(folder / "model.safetensors")
    torch.manual_seed(4)
    last = "model.layers.1."
    for name in [name for name in tensors if name.startswith(last)]:
        part = name.removeprefix(last)
        made = tensors[name].clone() if tensors[name].ndim == 1 else 0.1 * torch.randn(tensors[name].shape)
        tensors[MIMO.layer + part] = 0.1 * made if part.endswith(("o_proj.weight", "down_proj.weight")) else made
    for name in ("token", "hidden", "final"):
        tensors[f"{MIMO.layer}{name}_layernorm.weight"] = torch.ones(WIDTH)
    tensors[f"{MIMO.layer}input_proj.weight"] = torch.cat((torch.zeros(WIDTH, WIDTH), torch.eye(WIDTH)), 1)
    for name in [name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
        tensors[name.replace(".weight", ".bias")] = torch.zeros(tensors[name].shape[0])
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "mimo"
    write_mimo(folder)
    with Host(folder) as host:
        yield host


def test_a_load_finds_the_layer(host: Host) -> None:
    assert host.engine.loaded is not None
    assert host.engine.loaded.card.heads == ["mtp"]
    assert ("multi-token layer", "the checkpoint's own") in host.engine.loaded.drafting.methods


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "sampling"), cases("16bit-seeded", "window-greedy", by=tuple(SAMPLINGS), of=("16bit", "int8", "window"))
)
def test_the_layer_drafts_and_the_text_stays(host: Host, variant: str, sampling: str) -> None:
    host.fresh(VARIANTS[variant].switches)
    expected = host.texts(PROMPTS, SAMPLINGS[sampling])
    for budget, disturbed in ((512, None), (90, None), (160, random.Random(1))):
        drafting = {"speculation": "mtp", "draft_length": 4, "ngram_first": False}
        ids = host.ask(PROMPTS, SAMPLINGS[sampling], **drafting)
        host.run(budget, disturbed)
        assert host.of(ids) == expected
        assert {"mtp", "corrected"} <= set(host.sources(ids))

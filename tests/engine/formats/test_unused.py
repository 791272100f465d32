"""A head that config.json calls tied and the weights hold, and tensors that the model does not ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.formats import unused as module
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.formats.unused import unused
from tests.engine.formats.sound_folders import CONFIG, tensors

TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def write(folder: Path, tied: bool = True, **more: torch.Tensor | None) -> Path:
    """A sound model with the tensors ``more``, by names whose dots are "__"; None: without it."""
    changed = {name.replace("__", "."): tensor for name, tensor in more.items()}
    held = {name: tensor for name, tensor in (tensors() | changed).items() if tensor is not None}
    save_file(held, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": tied}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def close_to(table: torch.Tensor, row: int) -> torch.Tensor:
    head = table.clone()
    head[row] += 1
    return head


@pytest.mark.parametrize("row", [None, 0, 20, 39])
def test_a_head_that_differs_is_used(row: int | None, tmp_path: Path) -> None:
    table = torch.randn(40, 32)
    head = table.clone() if row is None else close_to(table, row)
    opened = open_checkpoint(write(tmp_path, model__embed_tokens__weight=table, lm_head__weight=head))
    assert opened.config.tie_word_embeddings == (row is None)
    assert opened.notices == (() if row is None else (module.OWN_HEAD.format(name=tmp_path.name),))
    model = load_model(opened, torch.device("cpu"), torch.float32)
    assert model.head.tied == (row is None)
    assert torch.equal(model.head.forward(torch.eye(32)).T, head)


def test_large_heads_are_compared_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first to the last row; and one in fewer bits is the same where the table rounds to it."""
    monkeypatch.setattr(module, "_WHOLE", 1)
    monkeypatch.setattr(module, "_PART", 4 * 32 * 2)
    table = torch.randn(40, 32)
    for row in (0, 39):
        write(tmp_path, model__embed_tokens__weight=table, lm_head__weight=close_to(table, row))
        assert not open_checkpoint(tmp_path).config.tie_word_embeddings
    write(tmp_path, model__embed_tokens__weight=table, lm_head__weight=table.bfloat16())
    assert open_checkpoint(tmp_path).config.tie_word_embeddings
    write(tmp_path, lm_head__weight=None)
    assert open_checkpoint(tmp_path).notices == ()


def test_tensors_that_nothing_asks_for_are_counted(tmp_path: Path) -> None:
    one = {"model__layers__1__self_attn__q_norm__weight": torch.ones(8)}
    (notice,) = open_checkpoint(write(tmp_path, tied=False, **one)).notices
    assert "hold a tensor that the model does not use" in notice
    assert "(model.layers.1.self_attn.q_norm.weight)" in notice
    left = {f"model__layers__0__self_attn__q_proj__lora_{half}__weight": torch.ones(2, 2) for half in "AB"}
    more = one | left | {"score__weight": torch.ones(2), "model__layers__0__input_layernorm__bias": torch.ones(32)}
    (notice,) = open_checkpoint(write(tmp_path, tied=False, **more)).notices
    assert "hold 5 tensors that" in notice
    assert " and 2 more)" in notice


def test_by_products_of_sound_models_are_not(tmp_path: Path) -> None:
    names = [
        *("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq", "mtp.fc.weight"),
        *("model.mtp.layers.0.input_proj.weight", "model.layers.0.self_attn.k_scale", "model.layers.2.eh_proj.weight"),
        *("model.layers.2.shared_head.head.weight", "model.layers.0.mlp.up_proj.input_scale"),
    ]
    more = {name.replace(".", "__"): torch.ones(2) for name in names}
    assert open_checkpoint(write(tmp_path, tied=False, **more)).notices == ()


def test_keys_and_values_that_a_layer_shares(tmp_path: Path) -> None:
    """Those of the layer that shares are there in sound files and not read; in safetensors and in GGUF."""
    config = open_checkpoint(write(tmp_path)).config
    shared = config.changed(kv_sources=(0, 0))
    names = ["model.layers.{}.self_attn.k_proj.weight", "model.layers.{}.self_attn.k_norm.weight",
             "blk.{}.attn_v.weight", "blk.{}.attn_k_norm.weight"]  # fmt: skip
    for layer, found in ((0, 4), (1, 0)):
        assert len(unused([name.format(layer) for name in names], set(), shared)) == found
    gguf = ["rope_freqs.weight", "blk.2.nextn.eh_proj.weight", "blk.1.attn_q.weight", "blk.1.attn_q.bias", "v.x.weight"]
    assert unused(gguf, {"blk.1.attn_q.weight"}, config) == ["blk.1.attn_q.bias", "v.x.weight"]

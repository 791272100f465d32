"""The multi-token layer of Qwen3.5's checkpoints, against the one that transformers makes of the same file."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from engine.compute.batch import SequenceRows
from engine.compute.models.heads.base import OUTPUT
from engine.compute.models.heads.mtp import QWEN
from engine.formats.gguf.names import _INNER, NEXT
from tests.conformance.engine_support import Ours, multi_token, relative
from tests.conformance.gguf_converter import convert
from tests.conformance.gguf_models import VOCABULARY
from tests.conformance.hybrid_models import write_hybrid

MOE = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 24}


@pytest.mark.parametrize("moe", [False, True], ids=["dense", "experts"])
@torch.inference_mode()
def test_the_layer_is_that_of_transformers(tmp_path: Path, moe: bool) -> None:
    """Over a text in one piece and in chunks, then over an output of its own."""
    kind = Qwen3_5MoeForCausalLM if moe else Qwen3_5ForCausalLM
    write_hybrid(tmp_path, kind, **(MOE if moe else {}))
    theirs = kind.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    theirs.config.num_mtp_layers, theirs.config.mtp_layer_types = 1, ["full_attention"]
    layer, cache = MtpModel.from_pretrained(theirs), MtpCache(config=theirs.config.get_mtp_config())
    text = torch.randint(3, 90, (1, 30), generator=torch.Generator().manual_seed(1))
    states = theirs.model(text).last_hidden_state
    places = torch.arange(29)[None]
    read = layer.forward_layer(0, states[:, :29], places, cache, input_ids=text[:, 1:])
    after = layer.forward_layer(0, read[:, -1:], places[:, -1:] + 1, cache, input_ids=text[:, :1])

    ours = Ours(tmp_path)
    head, runner = multi_token(tmp_path, ours, QWEN)
    rows, last = ours.row(text[0].tolist(), 0, 0, 30), ours.model.num_layers
    hidden = ours.runner.forward([rows], want_hidden=frozenset({last})).hidden
    features = head.features(hidden)
    assert relative(features, states[0]) <= 1e-4
    for cuts in ((0, 29), (0, 1, 8, 29)):
        parts = []
        for start, stop in itertools.pairwise(cuts):
            entries = SequenceRows(text[0, start + 1 : stop + 1].tolist(), start, ours.pages(0), stop - start)
            parts.append(runner.forward([entries], hidden_in=features[start:stop]))
        outputs = torch.cat([part.hidden[OUTPUT] for part in parts])
        assert relative(outputs, read[0]) <= 1e-4
        assert relative(torch.cat([part.logits for part in parts]), theirs.lm_head(read)[0]) <= 1e-4
    again = runner.forward([SequenceRows([int(text[0, 0])], 29, ours.pages(0), 1)], hidden_in=outputs[-1:])
    assert relative(again.hidden[OUTPUT], after[0]) <= 1e-4


@torch.inference_mode()
def test_a_gguf_file_has_it_as_one_more_layer(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "model.gguf"
    write_hybrid(folder, vocab_size=VOCABULARY)
    theirs = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    more = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.startswith("mtp."):
            inner = name.removeprefix("mtp.layers.0.").removesuffix(".weight")
            own = NEXT.get(inner) or {"post_attention_layernorm": "post_attention_norm"}.get(inner) or _INNER[inner]
            more[f"blk.4.{own}.weight"] = tensor + 1 if name.endswith("norm.weight") or "norm_" in name else tensor
    convert(theirs, file, keys={"block_count": 5, "nextn_predict_layers": 1}, more=more)
    made = [multi_token(path, Ours(path), QWEN) for path in (folder, file)]
    rows, features = [SequenceRows(range(3, 15), 0, [1], 12)], torch.randn(12, 64)
    outputs = [runner.forward(rows, hidden_in=features) for _, runner in made]
    assert torch.equal(outputs[0].hidden[OUTPUT], outputs[1].hidden[OUTPUT])
    assert torch.equal(outputs[0].logits, outputs[1].logits)
    assert [head.target.num_layers for head, _ in made] == [4, 4]


@torch.inference_mode()
def test_a_token_table_of_its_own_is_used(tmp_path: Path) -> None:
    write_hybrid(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    found = []
    for table in (None, tensors["model.embed_tokens.weight"], torch.randn(tensors["model.embed_tokens.weight"].shape)):
        own = {} if table is None else {QWEN.table: table.clone()}
        save_file(tensors | own, file, {"format": "pt"})
        _, runner = multi_token(tmp_path, Ours(tmp_path), QWEN, own_table=table is not None)
        found.append(runner.forward([SequenceRows([5, 6], 0, [1], 2)], hidden_in=torch.ones(2, 64)).logits)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])

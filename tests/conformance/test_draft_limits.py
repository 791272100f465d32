"""A draft model beside what only its target can do: rows that choose pages, tokens that the draft has no row for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.protocol import Sampling
from tests.conformance.texts import prompts, same
from tests.kit.checkpoints import write_llama
from tests.kit.hosts import Host


def cut(folder: Path) -> None:
    """Take the last row of the vocabulary away."""
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] -= 1
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][: config["vocab_size"]].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    torch.set_num_threads(1)
    folder: Path = tmp_path_factory.mktemp("models")
    write_llama(folder / "target", num_hidden_layers=3)
    write_llama(folder / "draft", noise=0.08)
    cut(folder / "draft")
    with Host(folder / "target", str(folder / "draft"), speculation="off") as host:
        yield host


def test_a_draft_reads_tokens_that_it_has_no_row_for(host: Host) -> None:
    """A target's padding behind the vocabulary may be drawn, and a client may send it; the draft has less of it."""
    loaded = host.engine.loaded
    assert loaded is not None
    assert loaded.drafting.model is not None
    assert loaded.drafting.model.config.vocab_size == loaded.card.vocabulary - 1
    sampling = Sampling(temperature=0.0, max_tokens=48, ignore_eos=True)
    asked = prompts(2)
    asked[1][3] = loaded.card.vocabulary - 1
    plain = host.answer(asked, sampling)
    drafted = host.answer(asked, sampling, speculation="draft", draft_length=4, ngram_first=False)
    assert same(plain, drafted)
    assert all("corrected" in outcome.sources for outcome in drafted)


def test_a_draft_model_drafts_for_rows_that_choose_pages(host: Host) -> None:
    """Its arena keeps no bounds of pages: its own rows read them all."""
    host.set(page_policy="quest", quest_tokens=32)
    sampling = Sampling(temperature=0.0, max_tokens=48, ignore_eos=True)
    plain = host.answer(prompts(2), sampling)
    drafted = host.answer(prompts(2), sampling, speculation="draft", draft_length=4, ngram_first=False)
    assert same(plain, drafted)
    assert all("corrected" in outcome.sources for outcome in drafted)

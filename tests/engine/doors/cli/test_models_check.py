"""`kvasir models check` against transformers on the same folder, and what it says to bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from engine.doors.cli.main import app

transformers = pytest.importorskip("transformers")

IDS = [int(id) for id in torch.randint(3, 128, (300,), generator=torch.Generator().manual_seed(1))]


def save(path: Path, family: str, **own: Any) -> Path:
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{family}TextConfig" if family == "Gemma3" else f"{family}Config")(
        **shape, **own, num_key_value_heads=2, vocab_size=128, max_position_embeddings=320, tie_word_embeddings=False
    )
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(path)
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({f"t{i}": i for i in range(128)}, unk_token="t0")).save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "tiny", "Llama")


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "experts", "Qwen3Moe", num_local_experts=4, num_experts_per_tok=2)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its layers are of two groups, one of which keeps the last 32 tokens."""
    own = {"head_dim": 16, "sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"]}
    return save(tmp_path_factory.mktemp("models") / "windowed", "Gemma3", **own)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["models", "check", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.parametrize("kind", ["folder", "experts", "windowed"])
def test_the_numbers_are_transformers(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    (tmp_path / "ids.json").write_text(json.dumps(IDS), "utf-8")
    code, said = run(
        folder,
        "--tokens",
        tmp_path / "ids.json",
        "--dump",
        tmp_path / "out.npz",
        "--dtype",
        "float32",
        "--max-tokens",
        30,
    )
    assert code == 0, said
    assert "float32 on cpu: 300 ids, 20 more" in said, "the context ends at 320"
    found = np.load(tmp_path / "out.npz")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = model(torch.tensor([IDS])).logits[0].numpy()
        longer = model(torch.tensor([IDS + found["continuation"].tolist()])).logits[0]
    assert found["logits"].dtype == np.float32
    assert np.abs(found["logits"] - expected).max() <= 1e-4 * np.abs(expected).max()
    assert found["tokens"].tolist() == IDS
    assert found["continuation"].tolist() == longer[299:-1].argmax(-1).tolist()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1, 2", "not a JSON list"),
        ("[]", "not a JSON list"),
        ("[1, true]", "not a JSON list"),
        ("[5, 128]", "outside 0 to 127"),
        ("[-1]", "outside 0 to 127"),
        (json.dumps([5] * 321), "there is room for 320"),
    ],
)
def test_bad_ids(folder: Path, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "ids.json").write_text(text, "utf-8")
    code, said = run(folder, "--tokens", tmp_path / "ids.json", "--dump", tmp_path / "out.npz")
    assert (code, says in said) == (1, True), said
    assert not (tmp_path / "out.npz").exists()


def test_no_file_no_model_no_such_dtype(folder: Path, tmp_path: Path) -> None:
    dump = ("--dump", tmp_path / "out.npz")
    assert "cannot be read" in run(folder, "--tokens", tmp_path / "none.json", *dump)[1]
    (tmp_path / "ids.json").write_text("[1]", "utf-8")
    assert run(tmp_path / "no-model", "--tokens", tmp_path / "ids.json", *dump)[0] == 1
    assert run(folder, "--tokens", tmp_path / "ids.json", *dump, "--dtype", "int4")[0] == 2


def test_quantised_while_loading(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option changes the numbers a little, and the line says what was done."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    (tmp_path / "ids.json").write_text(json.dumps(IDS[:40]), "utf-8")
    logits = []
    for method in ("none", "int8", "nf4"):
        arguments = ("--tokens", tmp_path / "ids.json", "--dump", tmp_path / "out.npz", "--quantise", method)
        code, said = run(folder, *arguments, "--dtype", "float32", "--max-tokens", 0)
        assert code == 0, said
        assert ("quantised from fp32 while loading" in said) == (method != "none")
        logits.append(np.load(tmp_path / "out.npz")["logits"])
    off = [np.abs(found - logits[0]).max() / np.abs(logits[0]).max() for found in logits[1:]]
    assert 0 < off[0] < 0.05
    assert off[0] < off[1] < 0.5
    code, said = run(folder, "--tokens", tmp_path / "ids.json", "--dump", tmp_path / "out.npz", "--quantise", "int3")
    assert code == 2
    assert "int3" in said
    listed = CliRunner().invoke(app, ["models", "cache"]).output
    assert ("tiny, NF4" in listed, "tiny, int8" in listed) == (True, True)
    assert "2 models" in listed
    assert "deleted" in CliRunner().invoke(app, ["models", "cache", "--clear"]).output
    assert "0 models" in CliRunner().invoke(app, ["models", "cache"]).output


def test_a_longer_context_than_the_models_own(tmp_path: Path) -> None:
    """Phi with LongRoPE keeps to its original context unless a longer one is asked for: then as transformers."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0 + i for i in range(8)], "rope_type": "longrope"}
    rope = {"rope_parameters": factors | {"rope_theta": 1e4, "original_max_position_embeddings": 64, "factor": 5.0}}
    folder = save(tmp_path / "phi", "Phi3", pad_token_id=0, original_max_position_embeddings=64, **rope)
    (tmp_path / "ids.json").write_text(json.dumps(IDS), "utf-8")
    ask = (folder, "--tokens", tmp_path / "ids.json", "--dump", tmp_path / "out.npz", "--dtype", "float32")
    assert "there is room for 64" in run(*ask)[1]
    assert "there is room for 200" in run(*ask, "--context", 200)[1]
    code, said = run(*ask, "--context", 310, "--max-tokens", 30)
    assert code == 0, said
    found = np.load(tmp_path / "out.npz")
    assert len(found["continuation"]) == 10
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = model(torch.tensor([IDS])).logits[0].numpy()
    assert np.abs(found["logits"] - expected).max() <= 1e-4 * np.abs(expected).max()


def test_a_context_that_is_none(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text("[1]", "utf-8")
    ask = (folder, "--tokens", tmp_path / "ids.json", "--dump", tmp_path / "out.npz")
    assert run(*ask, "--context", 0)[0] == 2
    code, said = run(*ask, "--context", 5)
    assert (code, "A context of 5 tokens is too short" in said) == (1, True)

"""The list of recommended models, and the script that compares it with the hub."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.base.files import UnreadableFileError
from engine.compute.models.registry import FAMILIES
from engine.formats.gguf.architectures import ARCHITECTURES
from engine.formats.open import open_checkpoint
from engine.library import curated, paths
from engine.protocol.recommended import PURPOSES, CuratedModel
from tests.hub_server import Hub, Repository

DEMO = paths.bundled_folder()
ALSO_IN_GGUF = {"mistral", "mixtral", "olmo3", "deepseek_v3"}
"""Families whose GGUF files say the name of another."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    hub = Hub()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "kvasir"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield hub
    hub.close()


@pytest.fixture
def check() -> Callable[..., int]:
    place = paths.models_file().with_name("check_models.py")
    spec = importlib.util.spec_from_file_location("check_models", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def test_the_list_names_models_that_kvasir_loads() -> None:
    models = curated.read(paths.models_file()).models
    assert len(models) >= 25
    in_gguf = {FAMILIES[each.family] for each in ARCHITECTURES.values()} | ALSO_IN_GGUF
    for model in models:
        assert FAMILIES[model.family] in (in_gguf if model.format == "gguf" else FAMILIES.values()), model.repository
        assert model.about.endswith(".")
        assert len(model.about) <= 90, model.about
    assert {purpose for model in models for purpose in model.purposes} == set(PURPOSES)
    assert sum(model.draft is not None for model in models) >= 10


def test_no_word_of_the_file_is_passed_over() -> None:
    known = set(CuratedModel.__struct_fields__)
    for entry in json.loads(paths.models_file().read_text("utf-8"))["models"]:
        assert set(entry) <= known, entry["repository"]


@pytest.mark.parametrize(
    "broken",
    [
        {"repository": "no-slash"},
        {"purposes": []},
        {"purposes": ["poems"]},
        {"source": "hearsay"},
        {"bytes": -1},
        {"draft": {"kind": "model"}},
        {"draft": {"kind": "mtp", "repository": "a/b", "variant": "Q8_0"}},
    ],
)
def test_a_broken_list_is_refused_and_stops_nothing(tmp_path: Path, broken: dict[str, object]) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps(listed(_guide() | broken)))
    with pytest.raises(UnreadableFileError):
        curated.read(file)
    assert curated.models(file) == []
    file.write_text(json.dumps(listed(_guide(), _guide())))
    with pytest.raises(UnreadableFileError, match="stands there twice"):
        curated.read(file)
    assert curated.models(tmp_path / "none.json") == []


def listed(*entries: dict[str, object]) -> dict[str, object]:
    return {"sources": {"test": "a test"}, "models": list(entries)}


def _guide() -> dict[str, object]:
    """The bundled model as an entry whose figures are right, with its draft model."""
    config = open_checkpoint(DEMO / "kvasir-guide").config
    return {
        "repository": "kvasir/guide",
        "variant": "safetensors",
        "format": "safetensors",
        "family": "LlamaForCausalLM",
        "parameters": 1,
        "bytes": sum(len(content) for content in _files("kvasir-guide").values()),
        "licence": "apache-2.0",
        "context": config.positions.max_position,
        "kv_bytes": 4 * config.num_layers * config.attention.num_kv_heads * config.attention.head_dim,
        "purposes": ["small"],
        "about": "A test.",
        "draft": {"kind": "model", "repository": "kvasir/draft", "variant": "safetensors"},
        "taken": "2026-11-25",
        "source": "test",
    }


def _files(name: str) -> dict[str, bytes]:
    names = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    return {each: (DEMO / name / each).read_bytes() for each in names}


def _stock(hub: Hub) -> None:
    told = {"tags": ["safetensors", "license:apache-2.0"], "config": json.loads(_files("kvasir-guide")["config.json"])}
    hub.repositories["kvasir/guide"] = Repository(_files("kvasir-guide"), **told)
    hub.repositories["kvasir/draft"] = Repository(_files("kvasir-guide-draft"), **told)


def test_what_the_hub_says_otherwise_is_printed_and_written(hub: Hub, check, tmp_path, capsys) -> None:
    _stock(hub)
    file = tmp_path / "models.json"
    file.write_text(json.dumps(listed(_guide())))
    assert check(["--file", str(file)]) == 0
    assert capsys.readouterr().out == ""
    file.write_text(
        json.dumps(listed(_guide() | {"bytes": 5, "licence": "mit", "kv_bytes": 3, "family": "OPTForCausalLM"}))
    )
    assert check(["--file", str(file)]) == 1
    out = capsys.readouterr().out
    right = _guide()
    assert f"kvasir/guide safetensors: bytes is {right['bytes']}, not 5" in out
    assert "licence is 'apache-2.0', not 'mit'" in out
    assert f"kv_bytes is {right['kv_bytes']}, not 3" in out
    assert "it is of the family LlamaForCausalLM, not OPTForCausalLM" in out
    file.write_text(json.dumps(listed(_guide() | {"bytes": 5, "licence": "mit", "context": 0})))
    assert check(["--file", str(file), "--write"]) == 0
    (mended,) = curated.read(file).models
    assert (mended.bytes, mended.licence, mended.source) == (right["bytes"], "apache-2.0", "hub")
    assert mended.context == right["context"]
    assert hub.address in curated.read(file).sources["hub"]


def test_what_cannot_be_had_and_what_cannot_draft(hub: Hub, check, tmp_path, capsys) -> None:
    _stock(hub)
    tokenizer = json.loads(_files("kvasir-guide-draft")["tokenizer.json"])
    last = max(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    one_off = {token: index for token, index in tokenizer["model"]["vocab"].items() if token != last}
    tokenizer["model"]["vocab"] = one_off | {last + "x": tokenizer["model"]["vocab"][last]}
    tokenizer["model"]["merges"] = [pair for pair in tokenizer["model"]["merges"] if "".join(pair) != last]
    hub.repositories["kvasir/other"] = Repository(
        _files("kvasir-guide-draft") | {"tokenizer.json": json.dumps(tokenizer).encode()}
    )
    hub.repositories["kvasir/new"] = Repository(_files("kvasir-guide"), config={"architectures": ["NewForCausalLM"]})
    cut = {"model.safetensors": _files("kvasir-guide")["model.safetensors"][:5000]}
    hub.repositories["kvasir/cut"] = Repository(_files("kvasir-guide") | cut)
    file = tmp_path / "models.json"
    entries = (
        _guide() | {"repository": "kvasir/gone"},
        _guide() | {"variant": "Q4_K_M", "format": "gguf"},
        _guide() | {"draft": {"kind": "model", "repository": "kvasir/other", "variant": "safetensors"}},
        _guide() | {"repository": "kvasir/new"},
        _guide() | {"repository": "kvasir/cut"},
        _guide() | {"repository": "kvasir/draft", "draft": {"kind": "mtp"}},
    )
    file.write_text(json.dumps(listed(*entries)))
    assert check(["--file", str(file)]) == 1
    out = capsys.readouterr().out
    assert "kvasir/gone safetensors: " in out
    assert "has no model kvasir/gone" in out
    assert "'Q4_K_M' is not one of them" in out
    assert "kvasir/other cannot draft for it: their vocabularies differ" in out
    assert "NewForCausalLM, is none that Kvasir loads" in out
    assert "it has no multi-token layers" in out
    assert [line for line in out.splitlines() if line.startswith("kvasir/cut safetensors: ")]

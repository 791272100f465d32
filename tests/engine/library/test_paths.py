from __future__ import annotations

from pathlib import Path

import pytest

from engine.library import paths as config
from engine.library.paths import ModelNotFound

TINY = {"kvasir-guide", "kvasir-hybrid", "kvasir-needle", "kvasir-seeing", "kvasir-tools"}


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    folder = tmp_path / "models"
    for name in ("one", "one-draft", "lonely-draft", "no-model"):
        (folder / name).mkdir(parents=True)
        if name != "no-model":
            (folder / name / "config.json").write_text("{}")
    monkeypatch.setenv("KVASIR_MODELS", str(folder))
    return folder


def test_the_bundled_model_is_found_with_its_draft() -> None:
    bundled = config.bundled_model()
    assert bundled.name == "kvasir-guide"
    assert Path(bundled.draft).name == "kvasir-guide-draft"
    assert config.known_models()[0] == bundled
    assert config.find_model("") == bundled


def test_known_models(models: Path) -> None:
    found = {model.name: model for model in config.known_models()}
    assert set(found) == TINY | {"one", "lonely-draft"}
    assert found["one"].draft == str(models / "one-draft")


def test_resolve(models: Path) -> None:
    one, draft = str(models / "one"), str(models / "one-draft")
    assert config.resolve("one", None) == (one, draft)
    assert config.resolve(one, None) == (one, draft)
    assert config.resolve("one", "") == (one, "")
    assert config.resolve("one", "one-draft") == (one, draft)
    assert config.resolve("lonely-draft", "one-draft") == (str(models / "lonely-draft"), draft)
    assert config.resolve(str(models / "no-model"), None) == (str(models / "no-model"), "")


def test_heads_in_one_file_stand_for_a_draft(models: Path) -> None:
    heads = models / "medusa_lm_head.safetensors"
    heads.write_bytes(b"")
    assert config.resolve("one", str(heads)) == (str(models / "one"), str(heads))
    with pytest.raises(ModelNotFound, match="Give the full path"):
        config.resolve("one", heads.name)


@pytest.mark.parametrize("name", ["two", "../models/one", "one/../one", "models/one", "~nobody/one"])
def test_names_do_not_wander(name: str) -> None:
    with pytest.raises(ModelNotFound, match="Give the full path"):
        config.find_model(name)


def test_a_file_is_no_model(models: Path) -> None:
    with pytest.raises(ModelNotFound, match="Give the folder"):
        config.find_model(str(models / "one" / "config.json"))


def test_gguf_files_are_models(models: Path) -> None:
    several, single = models / "several", models / "single"
    files = [models / "a.gguf", models / "a-draft.gguf", models / "mmproj-a.gguf", single / "b.gguf"]
    files += [several / f"{name}-0000{number}-of-00002.gguf" for name in ("Q4", "Q8") for number in (1, 2)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"GGUF")
    found = {model.name: model for model in config.known_models()}
    first = {"Q4-00001-of-00002.gguf", "Q8-00001-of-00002.gguf"}
    assert set(found) == TINY | {"one", "lonely-draft", "a.gguf", "single"} | first
    assert found["a.gguf"].draft == str(files[1])
    assert config.resolve(str(files[0]), None) == (str(files[0]), str(files[1]))
    assert config.resolve("a.gguf", "one-draft") == (str(files[0]), str(models / "one-draft"))
    assert config.resolve("Q4-00001-of-00002.gguf", None) == (str(several / "Q4-00001-of-00002.gguf"), "")


def test_folders_of_a_home(tmp_path: Path) -> None:
    for folder in (config.data_folder(), config.cache_folder(), config.runtime_folder()):
        assert folder.is_dir()
        assert folder.parent == tmp_path / "home"


def test_the_runtime_folder_is_nobody_elses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KVASIR_HOME")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in config.runtime_folder().parents


def test_several_gguf_versions_beside_a_configuration(models: Path) -> None:
    """As some people publish them: the folder itself would only say that it holds several."""
    folder = models / "published"
    folder.mkdir()
    for name in ("config.json", "Q4_K_M.gguf", "Q8_0.gguf"):
        (folder / name).touch()
    names = {model.name for model in config.known_models()}
    assert {"Q4_K_M.gguf", "Q8_0.gguf"} <= names
    assert "published" not in names

"""What other programs keep on this machine, laid out as each of them does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.formats.gguf.find import is_gguf
from engine.library.local import stored_models
from engine.library.others import ForeignModel, models_of_others

HEX = "ab" * 32


def write(path: Path, content: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_nothing_is_there() -> None:
    assert models_of_others() == []


def test_ollama_names_blobs_in_manifests(home: Path) -> None:
    place = home / ".ollama" / "models"
    blob = write(place / "blobs" / f"sha256-{HEX}")
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{HEX}", "size": 4},
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "cd" * 32},
    ]
    registry = place / "manifests" / "registry.ollama.ai"
    write(registry / "library" / "qwen3" / "8b", json.dumps({"layers": layers}).encode())
    write(registry / "somebody" / "own" / "latest", json.dumps({"layers": layers[:1]}).encode())
    bad = [{"mediaType": layers[0]["mediaType"], "digest": "sha256:../../../etc/passwd"}]
    for number, content in enumerate((b"no json", b"[]", b'{"layers": 3}', json.dumps({"layers": bad}).encode())):
        write(registry / "library" / "broken" / str(number), content)
    (found,) = models_of_others()  # the same file under two names is one model
    assert (found.path, found.origin) == (blob, "Ollama")
    assert found.name in ("qwen3:8b", "somebody/own:latest")
    assert is_gguf(found.path)


def test_lm_studio_has_a_folder_for_each_publisher(home: Path) -> None:
    place = home / ".lmstudio" / "models"
    file = write(place / "unsloth" / "Qwen3-8B-GGUF" / "Qwen3-8B-Q4_K_M.gguf")
    write(place / "unsloth" / "Qwen3-8B-GGUF" / "mmproj-F16.gguf")
    assert models_of_others() == [ForeignModel(file.name, file, "LM Studio", "unsloth/Qwen3-8B-GGUF")]
    moved = write(home / "else" / "models" / "a" / "b" / "c.gguf")
    write(home / ".lmstudio-home-pointer", str(home / "else").encode())
    assert [found.path for found in models_of_others()] == [moved]


def test_jan_says_where_the_file_is(home: Path) -> None:
    data = home / ".local" / "share" / "Jan" / "data"
    inside = write(data / "llamacpp" / "models" / "own" / "model.gguf")
    write(
        data / "llamacpp" / "models" / "own" / "model.yml", b"model_path: llamacpp/models/own/model.gguf\nname: own\n"
    )
    imported = write(home / "Downloads" / "x.gguf")
    write(data / "llamacpp" / "models" / "x" / "model.yml", f'name: x\nmodel_path: "{imported}"\n'.encode())
    write(data / "llamacpp" / "models" / "gone" / "model.yml", b"model_path: gone.gguf\n")
    found = {model.name: model.path for model in models_of_others() if model.origin == "Jan"}
    assert found == {"own": inside, "x": imported}


def test_gpt4all_has_files_in_one_folder(home: Path) -> None:
    file = write(home / ".local" / "share" / "nomic.ai" / "GPT4All" / "Llama-3.2.gguf")
    assert models_of_others() == [ForeignModel("Llama-3.2.gguf", file, "GPT4All")]


def test_the_hubs_cache_is_offered_where_it_is_whole(home: Path) -> None:
    place = home / ".cache" / "huggingface" / "hub"
    whole = place / "models--Qwen--Qwen3-8B" / "snapshots" / ("1" * 40)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    for name, content in {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}.items():
        write(whole / name, content)
    blob = write(place / "models--Qwen--Qwen3-8B" / "blobs" / "x", b"weights")
    (whole / "model-1.safetensors").symlink_to(blob)
    assert models_of_others() == []  # the other half is missing
    (whole / "model-2.safetensors").symlink_to(blob)
    assert models_of_others() == [ForeignModel("Qwen/Qwen3-8B", whole, "Hugging Face", "Qwen/Qwen3-8B", "1" * 40)]
    blob.unlink()
    assert models_of_others() == []


def test_ours_come_first_and_nothing_twice(home: Path, tmp_path: Path) -> None:
    file = write(home / ".lmstudio" / "models" / "a" / "b" / "c.gguf", b"GGUF and more")
    theirs = stored_models([], tmp_path)
    assert [(model.name, model.bytes, model.origin) for model in theirs] == [("c.gguf", 13, "LM Studio")]
    from engine.protocol import KnownModel

    known = KnownModel(name="c.gguf", path=str(file))
    assert [model.origin for model in stored_models([known], tmp_path)] == ["Kvasir"]

"""Small real models on the disk: in one file, in several, as GGUF and as GGUF in parts."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import gguf
import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from engine.doors.cli.main import app
from engine.library import paths
from tests.conformance.gguf_models import KIND, Shape, write

GUIDE = paths.bundled_folder() / "kvasir-guide"


def kvasir(*words: str | Path, **rest: str) -> Result:
    return CliRunner().invoke(app, ["models", *map(str, words)], env={"COLUMNS": "300"}, **rest)


def told(result: Result) -> list[dict]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(result: Result) -> str:
    """The sentence of a command that failed as one may."""
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    (sentence,) = (line for line in result.stderr.splitlines() if line.strip())
    return sentence.removeprefix("kvasir: ")


def folder_model(folder: Path) -> Path:
    """The bundled model without its heads."""
    shutil.copytree(GUIDE, folder, ignore=shutil.ignore_patterns("heads"))
    return folder


def sharded_model(folder: Path) -> Path:
    """The same, its weights in two files and an index."""
    folder_model(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for name, held in parts.items():
        save_file({each: tensors[each] for each in held}, folder / name)
    index = {"metadata": {}, "weight_map": {each: name for name, held in parts.items() for each in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def gguf_model(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    values = {"general.license": "apache-2.0", "tokenizer.chat_template": "{{ messages[0]['content'] }}"}
    write(file, Shape("llama", {"": KIND.Q4_0, "token_embd": KIND.F16}, values=values))
    return file


def split_model(file: Path) -> list[Path]:
    """A GGUF model in parts, as the gguf package splits it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFWriter", functools.partial(gguf.GGUFWriter, split_max_tensors=10))
        gguf_model(file)
    parts = sorted(file.parent.glob(f"{file.stem}-*-of-*.gguf"))
    assert len(parts) > 1
    return parts


def names() -> set[str]:
    """Of the models that are known and did not come with Kvasir."""
    return {model.name for model in paths.known_models() if not model.name.startswith("kvasir-")}

"""A fingerprint stays with a model, and is another one as soon as anything of it is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.base.errors import CheckpointError
from engine.formats.fingerprint import fingerprint
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from tests.engine.formats.llama_folders import write_dense


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_dense(folder, layers=2, hidden=128, inner=256, vocabulary=64)
    return folder


def opened(model: Path) -> Checkpoint:
    return open_checkpoint(model, need_tokenizer=False)


def weights(model: Path) -> Path:
    return next(iter(model.glob("*.safetensors")))


def test_it_is_the_same_for_the_same_model_wherever_it_lies(model: Path, tmp_path: Path) -> None:
    first = fingerprint(opened(model))
    assert len(first) == 32
    assert fingerprint(opened(model)) == first
    shutil.copytree(model, tmp_path / "moved")  # with the files' times
    assert fingerprint(opened(tmp_path / "moved")) == first


def change_config(model: Path, key: str, value: Any) -> None:
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))


def test_it_follows_weights_and_configuration(model: Path) -> None:
    seen = [fingerprint(opened(model))]
    file = weights(model)
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns

    entry = next(iter(opened(model).files.entries.values()))
    with file.open("r+b") as stream:  # a byte, behind the file's times
        stream.seek(entry.start)
        byte = stream.read(1)
        stream.seek(entry.start)
        stream.write(bytes([byte[0] ^ 1]))
    os.utime(file, ns=times)
    seen.append(fingerprint(opened(model)))

    os.utime(file, ns=(times[0], times[1] + 1))
    seen.append(fingerprint(opened(model)))

    change_config(model, "rms_norm_eps", 1e-4)
    seen.append(fingerprint(opened(model)))
    change_config(model, "rope_theta", 12_345.0)
    seen.append(fingerprint(opened(model)))

    seen.append(fingerprint(opened(model).quantised("nf4")))
    seen.append(fingerprint(opened(model), "bf16"))
    assert len(set(seen)) == len(seen)


def test_files_that_cannot_be_read_are_said_so(model: Path) -> None:
    checkpoint = opened(model)
    checkpoint.files.close()
    weights(model).unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        fingerprint(checkpoint)

"""Files of a model's folder that are none, or that hold what no such file needs: a sentence of ours, soon."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.base.errors import CheckpointError
from engine.formats.open import open_checkpoint
from tests.engine.formats.sound_folders import CONFIG, refusal


def _bind(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place))


SPECIAL: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "socket": _bind,
    "device": lambda place: place.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in a folder are POSIX's")
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "model.safetensors.index.json"])
def test_what_is_no_file_is_not_read(folder: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # a socket's path is short
    place = Path(name)
    place.unlink(missing_ok=True)
    SPECIAL[kind](place)
    assert f"{name} is a {kind}, where a file is needed." in refusal(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in a folder are POSIX's")
def test_a_pipe_beside_the_model_costs_only_what_it_stands_for(folder: Path) -> None:
    for name in ("generation_config.json", "chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
        os.mkfifo(folder / name)
    opened = open_checkpoint(folder)
    assert any("generation_config.json is a pipe" in notice for notice in opened.notices)
    assert "chat_template.jinja cannot be read" in opened.chat_template().notice
    os.mkfifo(folder / "pipe.gguf")
    with pytest.raises(CheckpointError, match=r"pipe\.gguf is a pipe"):
        open_checkpoint(folder / "pipe.gguf")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"hidden_size": 1' + b"0" * 100_000 + b"}", "a number of too many digits"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{\n1}", "not valid JSON (line 2, column 1)"),
        (b'{"\xff": 1}', "not text in UTF-8 (at byte 2)"),
        (b"[1]", "holds no JSON object"),
        (b" " * ((4 << 20) + 1), "more than 4,194,304 bytes"),
        (json.dumps(CONFIG | {"hidden_size": "x" * 5000}).encode(), '"hidden_size" is'),
        (json.dumps(CONFIG | {"architectures": ["\ud800\n" * 3000]}).encode(), "config.json"),
    ],
    ids=["digits", "depth", "syntax", "bytes", "list", "size", "value", "surrogates"],
)
def test_hostile_configurations_get_a_short_sentence_of_ours(folder: Path, content: bytes, says: str) -> None:
    (folder / "config.json").write_bytes(content)
    text = refusal(folder)
    assert len(text) < 1100
    assert text.encode()
    assert says in text or "architecture" in text
    assert not any(word in text for word in ("Expecting", "codec", "sys.set", "recursion", "Errno"))


@pytest.mark.parametrize("name", ["x" * 5000, "\ud800", "a\nb", "é" * 200])
def test_an_index_with_absurd_names(folder: Path, name: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    assert "model.safetensors.index.json names" in refusal(folder)


def test_shapes_beyond_all_bounds(folder: Path) -> None:
    for shape in ([10**4000] * 2, [1 << 62] * 1000):
        header = json.dumps({"x": {"dtype": "U8", "shape": shape, "data_offsets": [0, 0]}}).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        assert "shape or offsets of x are not whole numbers, or too large" in refusal(folder)


@pytest.mark.parametrize("path", ["x" * 5000, "~nobody-of-this-name/x", "a\0b", "\ud800"])
def test_paths_that_cannot_be(path: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert str(caught.value).endswith(".")
    assert str(caught.value).encode()


def test_a_folder_that_cannot_be_listed_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a process has no descriptor left."""

    def out_of_descriptors(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "glob", out_of_descriptors)
    assert "cannot be read (Too many open files)" in refusal(folder)

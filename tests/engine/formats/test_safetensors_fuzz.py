"""Folders of every packed format with anything changed: they load as what they say, or a sentence says why not."""

from __future__ import annotations

import json
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.base.errors import CheckpointError
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.formats.safetensors import DTYPES
from tests.engine.formats.changes import SMALL, other_bytes, other_config, other_header, parts, sound, whole
from tests.engine.formats.sound_folders import SOUND
from tests.kit.examples import examples

METHODS = (*SOUND, "plain")


def survive(folder: Path, config: dict[str, Any], data: bytes) -> bool:
    """Whether the folder loads. Nothing but a :class:`CheckpointError` says that it does not, and soon."""
    file = folder / "model.safetensors"
    file.write_bytes(data)
    (folder / "config.json").write_text(json.dumps(config))
    begin, said = time.process_time(), ""
    try:
        opened = open_checkpoint(folder, need_tokenizer=False)
        model = load_model(opened, torch.device("cpu"), torch.float32)
    except CheckpointError as error:
        said = str(error)
    assert time.process_time() - begin < 1
    assert "\n" not in said
    if said:
        assert said.endswith(".")
        return False
    assert model.storage_size() <= 1.1 * opened.resident_bytes(torch.float32)
    with safetensors.safe_open(file, "pt") as theirs:  # the format's own reader agrees that it is one
        assert set(theirs.keys()) == {entry.name for entry in opened.files.entries.values()}
        for entry in opened.files.entries.values():
            found = theirs.get_slice(entry.name)
            assert (tuple(found.get_shape()), DTYPES[found.get_dtype()]) == (entry.shape, entry.dtype)
    return True


def fuzz(folder: Path, method: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    config, data = sound(method)
    assert survive(folder, config, data)
    changes: list[Callable[[], tuple[dict[str, Any], bytes]]] = [
        lambda: (config, other_bytes(rng, data)),
        lambda: (config, other_header(rng, data)),
        lambda: (other_config(rng, config), data),
    ]
    tracemalloc.start()
    loaded = sum(survive(folder, *changes[number % 3]()) for number in range(count))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20
    assert 0 < loaded < count


@pytest.mark.parametrize("method", METHODS)
def test_changed_folders(method: str, tmp_path: Path) -> None:
    fuzz(tmp_path, method, 150, seed=5)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_many_changed_folders(method: str, tmp_path: Path) -> None:
    fuzz(tmp_path, method, 20_000, seed=6)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from([*sound("gptq")[0], *parts(sound("gptq")[1])[0]]) | st.text(max_size=8)
ENTRIES = st.fixed_dictionaries({"dtype": st.sampled_from(sorted(DTYPES)) | JSON,
    "shape": st.lists(st.integers(-1, 1 << 40), max_size=4) | JSON,
    "data_offsets": st.lists(st.integers(-1, 1 << 40), min_size=2, max_size=2) | JSON})  # fmt: skip


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, ENTRIES | JSON, max_size=5), st.binary(max_size=64))
def test_made_up_headers(tmp_path: Path, header: dict[str, Any], body: bytes) -> None:
    survive(tmp_path, SMALL, whole(json.dumps(header), body))


@pytest.mark.slow
def test_a_large_header_takes_little(tmp_path: Path) -> None:
    """Of 20,000 tensors, none of which the model has; one of more than 10 MB is refused by its length alone."""
    entries = {f"x{number}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for number in range(20_000)}
    (tmp_path / "model.safetensors").write_bytes(whole(json.dumps(entries), b""))
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="embed_tokens"):
        open_checkpoint(tmp_path, need_tokenizer=False)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 10_000_001) + b"{" + b" " * 10_000_000 + b"}")
    with pytest.raises(CheckpointError, match="header length"):
        open_checkpoint(tmp_path, need_tokenizer=False)

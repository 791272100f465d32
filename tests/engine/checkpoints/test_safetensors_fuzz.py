"""Folders of every packed format with anything changed: they load as what they say, or a sentence says why not."""

from __future__ import annotations

import copy
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from engine.checkpoints.load import load_model
from engine.checkpoints.open import open_checkpoint
from engine.checkpoints.safetensors import DTYPES
from engine.errors import CheckpointError
from tests.engine.checkpoints.test_open import CONFIG, tensors
from tests.engine.checkpoints.test_packed_damage import NAME, SOUND, STATED

SMALL = CONFIG | {"num_hidden_layers": 1}
METHODS = (*SOUND, "plain")
NUMBERS = (-1, 0, 1, 2, 3, 7, 31, 63, 64, 65, 1 << 16, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64, 10**400)
STRANGE: tuple[Any, ...] = (None, True, "", "4", [], [1], {}, {"a": 1}, 1.5, -0.0, 1e308, "x" * 500, *NUMBERS)


def sound(method: str) -> tuple[dict[str, Any], bytes]:
    """config.json and model.safetensors of a model of one layer, in which one module is packed."""
    held = {name: tensor for name, tensor in tensors().items() if "layers.1." not in name}
    if method == "plain":
        return SMALL, save(held)
    name = NAME.replace("layers.1", "layers.0")
    held.pop(f"{name}.weight")
    held |= {f"{name}.{end}": tensor for end, tensor in SOUND[method].items()}
    return SMALL | {"quantization_config": STATED[method]}, save(held)


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def whole(header: str, body: bytes) -> bytes:
    raw = header.encode()
    return struct.pack("<Q", len(raw)) + raw + body


def strange(rng: random.Random) -> Any:
    """A value of its own: what is put in may be changed later."""
    return copy.deepcopy(rng.choice(STRANGE))


# --- what can happen to a file ------------------------------------------------------------------------------------


def header_end(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def other_bytes(rng: random.Random, data: bytes, reach: int = 0) -> bytes:
    """Bits flipped, numbers put in, pieces cut out or doubled, the end gone; mostly within ``reach`` (the header)."""
    changed = bytearray(data)
    reach = reach or header_end(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(max(1, min(len(changed), rng.choice((8, reach, reach, len(data))))))
        match rng.randrange(6):
            case 0 | 1 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                changed[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 1 << 31, 1 << 40, (1 << 64) - 1, len(data))))
            case 3:
                del changed[at : at + rng.randint(1, 40)]
            case 4:
                changed[at:at] = changed[at : at + rng.randint(1, 200)]
            case 5:
                del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


def other_header(rng: random.Random, data: bytes) -> bytes:
    """Entries of the header changed: types, shapes, offsets that overlap or point elsewhere, names twice."""
    header, body = parts(data)
    names = [name for name in header if name != "__metadata__"]
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(names)
        item = header.setdefault(name, {})
        match rng.randrange(9):
            case 0:
                item["dtype"] = rng.choice((*DTYPES, "I128", *STRANGE))
            case 1:
                item["shape"] = rng.choice((STRANGE, [rng.choice(NUMBERS)] * rng.randint(1, 4)))
            case 2 if isinstance(item.get("shape"), list):
                item["shape"] = item["shape"][::-1]
            case 3:
                item["data_offsets"] = [rng.choice(NUMBERS), rng.choice(NUMBERS)]
            case 4:
                item["data_offsets"] = header.get(rng.choice(names), {}).get("data_offsets")
            case 5:
                header[rng.choice((*names, "x", ""))] = header.pop(name)
                names = [name for name in header if name != "__metadata__"]
            case 6:
                header[name] = strange(rng)
                header = {key: value for key, value in header.items() if isinstance(value, dict)}
                names = list(header)
            case 7:
                key = rng.choice(("dtype", "shape", "data_offsets"))
                item[key] = strange(rng)
            case 8:
                text = json.dumps(header)
                return whole(f"{text[:-1]}, {json.dumps(name)}: {json.dumps(item)}}}", body)
        if not names:
            break
    return whole(json.dumps(header), body)


def other_config(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """Values of the configuration changed, those of the quantisation more often."""
    changed = json.loads(json.dumps(config))
    for _ in range(rng.randint(1, 2)):
        place = changed
        while True:
            key = rng.choice(list(place))
            if not isinstance(place[key], dict) or not place[key] or rng.random() < 0.1:
                break
            place = place[key]
        place[key] = strange(rng)
        if rng.random() < 0.2:
            del place[key]
        if not isinstance(changed, dict) or not changed:
            break
    return changed


# --- what must hold -----------------------------------------------------------------------------------------------


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
    fuzz(tmp_path, method, 500, seed=5)


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


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, ENTRIES | JSON, max_size=5), st.binary(max_size=64))
def test_made_up_headers(tmp_path: Path, header: dict[str, Any], body: bytes) -> None:
    survive(tmp_path, SMALL, whole(json.dumps(header), body))


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

"""Packed modules whose tensors contradict the configuration or each other: refused from the headers, in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.base.errors import CheckpointError
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from tests.engine.formats.sound_folders import (
    CONFIG,
    NAME,
    NESTED,
    SOUND,
    STATE,
    STATED,
    refusal,
    state,
    tensors,
    text,
    words,
)


def write(folder: Path, method: str, change: dict[str, torch.Tensor | None] | None = None) -> Path:
    """A checkpoint with one packed module, changed."""
    held = tensors()
    held.pop(f"{NAME}.weight")
    module = SOUND[method] | (change or {})
    held |= {f"{NAME}.{key}": value for key, value in module.items() if value is not None}
    save_file(held, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": STATED[method]}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize("method", SOUND)
def test_sound_ones_open_and_load(method: str, tmp_path: Path) -> None:
    opened = open_checkpoint(write(tmp_path, method))
    model = load_model(opened, torch.device("cpu"), torch.float32)
    assert model.storage_size() == opened.resident_bytes(torch.float32)
    assert opened.parameters == sum(tensor.numel() for tensor in tensors().values())


DAMAGE: list[tuple[str, dict[str, torch.Tensor | None], str]] = [
    ("gptq", {"qweight": words(16, 32)}, "8 bits where the configuration says 4"),
    ("gptq", {"qweight": words(9, 32)}, "[9, 32]"),
    ("gptq", {"qweight": words(0)}, "qweight"),
    ("gptq", {"qweight": torch.tensor(1, dtype=torch.int32)}, "qweight"),
    ("gptq", {"qweight": torch.zeros(8, 32)}, "float32"),
    ("gptq", {"qzeros": None}, "lack the tensor"),
    ("gptq", {"qzeros": words(2, 32)}, "qzeros"),
    ("gptq", {"scales": None}, "lack the tensor"),
    ("gptq", {"scales": torch.ones(1, 32)}, "[2, 32]"),
    ("gptq", {"scales": words(2, 32)}, "scales is stored as int32"),
    ("gptq", {"g_idx": words(63)}, "g_idx"),
    ("gptq3", {"qweight": words(8, 32)}, "4 bits where the configuration says 3"),
    ("gptq3", {"qzeros": words(2, 4)}, "qzeros"),
    ("awq", {"qweight": words(8, 32)}, "(awq)"),
    ("awq", {"qzeros": words(3, 4)}, "qzeros"),
    ("awq", {"scales": torch.ones(2, 31)}, "scales"),
    ("compressed", {"weight_packed": words(32, 16)}, "8 bits where the configuration says 4"),
    ("compressed", {"weight_packed": words(31, 8)}, "weight_packed"),
    ("compressed", {"weight_scale": torch.ones(32, 2)}, "weight_scale"),
    ("compressed", {"weight_scale": torch.tensor(1.0)}, "weight_scale"),
    ("compressed", {"weight_scale": None}, "lack the tensor"),
    ("compressed", {"weight_zero_point": words(32, 1)}, "weight_zero_point"),
    ("compressed", {"weight_shape": torch.tensor([64, 32])}, "[64, 32]"),
    ("compressed", {"weight_shape": torch.zeros(2)}, "weight_shape"),
    ("compressed", {"weight_g_idx": words(3)}, "weight_g_idx"),
    ("nf4", {"weight": torch.zeros(1023, 1, dtype=torch.uint8)}, "[1023, 1]"),
    ("nf4", {"weight": torch.zeros(1024, 1, dtype=torch.int64)}, "weight"),
    ("nf4", {"weight.absmax": torch.ones(31)}, "absmax"),
    ("nf4", {"weight.absmax": torch.zeros(32, dtype=torch.uint8)}, "absmax is stored as uint8"),
    ("nf4", {"weight.absmax": None}, "lack the tensor"),
    ("nf4", {"weight.quant_map": torch.ones(17)}, "quant_map"),
    ("nf4", {STATE: text("{")}, "not a JSON object"),
    ("nf4", {STATE: text("[1]")}, "not a JSON object"),
    ("nf4", {STATE: text("[" * 4000)}, "not a JSON object"),
    ("nf4", {STATE: torch.full((9,), 255, dtype=torch.uint8)}, "not a JSON object"),
    ("nf4", {STATE: torch.zeros(100_000, dtype=torch.uint8)}, "at most 4,096"),
    ("nf4", {STATE: state(blocksize=63)}, "63"),
    ("nf4", {STATE: state(blocksize=0)}, '"blocksize" is 0'),
    ("nf4", {STATE: state(blocksize=1 << 62)}, "blocksize"),
    ("nf4", {STATE: state(blocksize=[64])}, "blocksize"),
    ("nf4", {STATE: state(shape=[64, 32])}, "[64, 32]"),
    ("nf4", {STATE: state(shape=None)}, "shape"),
    ("nf4", {STATE: state(quant_type="fp4")}, "fp4"),
    ("nested", {STATE: state()}, "nested_blocksize"),
    ("nested", {STATE: state(nested_blocksize=0, nested_offset=0.1)}, "nested_blocksize"),
    ("nested", {STATE: state(nested_blocksize=256, nested_offset=float("nan"))}, "nested_offset"),
    ("nested", {STATE: state(nested_blocksize=256, nested_offset=10**400)}, "nested_offset"),
    ("nested", {"weight.nested_absmax": torch.ones(2)}, "nested_absmax"),
    ("nested", {"weight.nested_quant_map": torch.ones(255)}, "nested_quant_map"),
    ("nested", {"weight.nested_absmax": None}, "absmax is stored as uint8"),
    ("int8", {"weight": torch.zeros(32, 63, dtype=torch.int8)}, "weight"),
    ("int8", {"weight": torch.zeros(32, 64)}, "float32"),
    ("int8", {"SCB": torch.ones(31)}, "SCB"),
    ("int8", {"SCB": None}, "int8"),
    ("int8", {"weight_format": torch.tensor(2, dtype=torch.uint8)}, "weight_format"),
    ("int8", {"weight_format": torch.zeros(50)}, "weight_format"),
]


@pytest.mark.parametrize(("method", "change", "says"), DAMAGE)
def test_damaged_ones_are_refused(
    method: str, change: dict[str, torch.Tensor | None], says: str, tmp_path: Path
) -> None:
    said = refusal(write(tmp_path, method, change))
    assert NAME in said
    assert says in said


@pytest.mark.parametrize("method", ["gptq", "gptq3"])
@pytest.mark.parametrize("bad", [-2, 2, 1 << 30])
def test_groups_that_do_not_exist(method: str, bad: int, tmp_path: Path) -> None:
    order = words(64)
    order[5] = bad
    opened = open_checkpoint(write(tmp_path, method, {"g_idx": order}))
    with pytest.raises(CheckpointError, match="g_idx names groups"):
        load_model(opened, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("method", SOUND)
def test_packed_tensors_without_a_configuration(method: str, tmp_path: Path) -> None:
    write(tmp_path, method)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "no quantization_config" in refusal(tmp_path)


def test_numbers_in_a_state_may_be_anything(tmp_path: Path) -> None:
    """Changed bytes give a refusal or another sound checkpoint, never another exception."""
    raw = bytearray(NESTED[STATE].tolist())
    change: Callable[[int], bytearray] = lambda i: raw[:i] + bytes([raw[i] ^ 9]) + raw[i + 1 :]  # noqa: E731
    refused = 0
    for place in range(len(raw)):
        write(tmp_path, "nested", {STATE: torch.tensor(list(change(place)), dtype=torch.uint8)})
        try:
            open_checkpoint(tmp_path)
        except CheckpointError:
            refused += 1
    assert refused > 30

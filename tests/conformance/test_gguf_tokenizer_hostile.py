"""Hostile tokenizers in GGUF metadata: a sentence, soon."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.base.errors import CheckpointError
from engine.formats.gguf.tokenizer import FileText
from tests.conformance import gguf_tokenizers as made
from tests.conformance.gguf_references import reference


def _hostile(key: str, value: Any) -> Any:
    return pytest.param(f"tokenizer.ggml.{key}", value, id=f"{key}-{str(value)[:24]}")


HOSTILE = [
    *(_hostile("model", value) for value in (None, 3, "rwkv", "x" * 1000, ["gpt2"])),
    *(_hostile("pre", value) for value in (7, "gpt-9", [])),
    *(_hostile("tokens", value) for value in (None, [], "abc", 5, [1, 2], ["a", "a"], ["a", None], ["a"])),
    _hostile("tokens", [f"t{index}" for index in range(1_000_000)]),
    _hostile("tokens", ["x" * 40_000_000]),
    *(_hostile("token_type", value) for value in ([], [1], 3, ["1"] * 907, [1] * 908, [True] * 907)),
    *(_hostile("merges", value) for value in (None, 7, [7], [""], ["a"], ["a b c"], ["zzz yyy"], [" "], ["a " * 99])),
    _hostile("merges", ["a b"] * 2_000_000),
    *(_hostile(f"{name}_token_id", value) for name in ("bos", "eos", "eot", "unknown") for value in ("1", 1.0)),
    *(_hostile("bos_token_id", value) for value in (True, 1.0, [1])),
    *(_hostile("add_bos_token", value) for value in ("yes", [], 2)),
]


@pytest.mark.parametrize(("key", "value"), HOSTILE)
def test_hostile_byte_level_metadata(key: str, value: Any) -> None:
    metadata = made.byte_level_metadata(reference("gpt-2"), "gpt-2")
    refused(metadata, key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(_hostile("scores", value) for value in (None, [], [0.0], "x", [float("nan")] * 1200, ["1"] * 1200)),
        _hostile("tokens", ["<unk>", *(f"{index}" * 600 for index in range(1199))]),
        *(_hostile("add_space_prefix", value) for value in ("no", 7)),
        _hostile("merges", ["zzz yyy"]),
    ],
)
def test_hostile_sentencepiece_metadata(key: str, value: Any) -> None:
    refused(made.sentencepiece_metadata(made.sentencepiece_model()), key, value)


def read_text(metadata: dict[str, Any]) -> None:
    """All that is read of a file for its text."""
    text = FileText(metadata)
    text.tokenizer()
    text.chat_template()


def refused(metadata: dict[str, Any], key: str, value: Any) -> None:
    """One sentence, soon."""
    metadata.pop(key, None)
    if value is not None:
        metadata[key] = value
    began = time.perf_counter()
    with pytest.raises(CheckpointError) as error:
        read_text(metadata)
    assert time.perf_counter() - began < 2
    message = str(error.value)
    assert len(message) < 300
    assert message.endswith(".")
    assert "\n" not in message

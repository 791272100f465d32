"""What ends an answer, by all files of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config.raw import RawConfig
from engine.formats.generation import read_generation_config
from engine.formats.quantised.nested import text_config
from engine.text.ends import end_ids
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import trained, write_folder

HARMONY = ("<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>")
GEMMA = ("<eos>", "</s>", "<turn|>", "<|tool_response>")


def ends_of(vocabulary: tuple[str, ...], declared: list[int], *stated: str) -> list[str]:
    found = end_ids(declared, {text: id for id, text in enumerate(vocabulary)}, vocabulary.__getitem__, stated)
    return [vocabulary[id] for id in found]


def test_declared_ones_come_first_and_known_names_follow() -> None:
    assert ends_of(("<s>", "</s>", "x", "<|im_end|>"), [2, 2]) == ["x", "</s>", "<|im_end|>"]
    assert ends_of(("a", "b"), []) == []
    assert ends_of(HARMONY, [2]) == ["<|return|>", "<|call|>", "<|endoftext|>"], "a message's end is not the answer's"
    assert ends_of(("<|end|>", "<|user|>"), [0]) == ["<|end|>"], "as Phi's, which has no <|call|>"
    assert ends_of(GEMMA, [0]) == ["<eos>", "<turn|>", "<|tool_response>"]
    fill = ("<|fim_pad|>", "<|file_sep|>")
    assert (ends_of(fill, []), ends_of(fill, [1], "fim_pad")) == ([*fill], ["<|file_sep|>"])


@pytest.mark.parametrize(
    ("own", "model", "due"),
    [
        ({"eos_token_id": 1}, {"eos_token_id": [1, 4]}, [1, 4]),
        ({"eos_token_id": [4, 1]}, {"eos_token_id": 1}, [4, 1]),
        (None, {"eos_token_id": [1, 106], "text_config": {"eos_token_id": 1}}, [1, 106]),
        ({"eos_token_id": 1}, {"eos_token_id": 106, "text_config": {"eos_token_id": [7]}}, [1, 106, 7]),
        ({}, {"text_config": {"eos_token_id": 5}}, [5]),
        ({}, {"eos_token_id": None}, []),
    ],
)
def test_all_configurations_declare(own: Any, model: dict[str, Any], due: list[int], tmp_path: Path) -> None:
    if own is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(own))
    nested = "text_config" in model
    model["architectures"] = ["Gemma3ForConditionalGeneration" if nested else "LlamaForCausalLM"]
    raw = text_config(RawConfig(model, tmp_path / "config.json"))
    assert read_generation_config(tmp_path, raw.values).eos_ids == due


def test_of_two_beginnings_the_outer_counts() -> None:
    values = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "bos_token_id": 2,
        "text_config": {"bos_token_id": 9},
    }
    assert text_config(RawConfig(values, Path("config.json"))).values["bos_token_id"] == 2


def test_the_tokenizers_own_end_whatever_its_name(tmp_path: Path) -> None:
    """By either of its files, and special by being named."""
    folder = write_folder(tmp_path, "chatml")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<kept>"}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "überall"}}))
    tokenizer = Tokenizer.open(folder)
    assert tokenizer.end_ids == (400, 401)
    assert {400, 401} <= tokenizer.special_ids
    assert tokenizer.special["<|im_end|>"] == json.loads(trained("chatml"))["model"]["vocab"]["<|im_end|>"]

"""What several files say of tokens: each place alone makes the same tokenizer, and contradictions are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers

from engine.formats.gguf.tokenizer import FileText
from engine.text.doubts import chat_doubts, missing_tokens
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer, TokenizerError
from tests.conformance.templates import STYLES
from tests.engine.text.samples import CHATML, write_folder
from tests.engine.text.token_folders import ENTRY, MARKS, PLACES, TEXT, WHOLE, folder_of

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"


@pytest.mark.parametrize("files", PLACES)
def test_every_place_registers(files: dict[str, Any], tmp_path: Path) -> None:
    found, due = Tokenizer.open(folder_of(tmp_path, **files)), Tokenizer.open(folder_of(tmp_path / "all", 3))
    assert found.encode(TEXT) == due.encode(TEXT)
    assert found.encode(TEXT)[0] == 1
    assert found.special_ids == due.special_ids
    assert (found.longest, found.difference(due), found.notices) == (due.longest, "", ())
    assert found.decode(due.encode(TEXT)) == "user\nhi "


def test_new_numbers_are_those_that_are_stated(tmp_path: Path) -> None:
    """Of tokens that the vocabulary lacks, where the token table has rows for them."""
    size = Tokenizer.open(folder_of(tmp_path, 3)).vocabulary
    stated = {str(size + at): {"content": f"<|new{at}|>", **ENTRY} for at in (0, 7)} | {"9000": {"content": "<|far|>"}}
    folder = folder_of(tmp_path, 3, tokenizer_config={"added_tokens_decoder": stated})
    found = Tokenizer.open(folder, rows=size + 8)
    assert found.encode("a<|new7|><|new0|>", special=False)[1:] == [size + 7, size]
    assert found.vocabulary == size + 8
    assert found.token_id("<|far|>") is None


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({CONFIG: {"added_tokens_decoder": {"5": WHOLE}}}, "'<|im_start|>' the number 5, and tokenizer.json 1."),
        ({CONFIG: {"added_tokens_decoder": {"1": {"content": "<|x|>"}}}}, "1 '<|x|>', and tokenizer.json '<|im_sta"),
        ({ADDED: {"<|x|>": 9000, "<|y|>": 9000}}, "the token 9,000 '<|y|>', and added_tokens.json '<|x|>'."),
        (
            {CONFIG: {"added_tokens_decoder": {"9000": {"content": "<|x|>"}}}, ADDED: {"<|x|>": 9001}},
            "tokenizer_config.json gives the token '<|x|>' the number 9,000, and added_tokens.json 9,001.",
        ),
    ],
)
def test_contradictions_are_refused(files: dict[str, Any], says: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, **{name.removesuffix(".json"): value for name, value in files.items()})
    with pytest.raises(TokenizerError) as refused:
        Tokenizer.open(folder)
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"The files of {tmp_path.name} contradict each other: ")


def test_one_odd_value_costs_itself(tmp_path: Path) -> None:
    """Python writes NaN and Infinity, editors a mark before a text, and numbers may be longer than the library's."""
    folder = folder_of(tmp_path, added_tokens={**MARKS, "<|far|>": 10**30, "<|a|>": -1, "<|b|>": 1.5, "\ud800": 3})
    odd = (
        '{"model_max_length": Infinity, "x": NaN, "eos_token": "<|im_end|>", "additional_special_tokens": ["\\ud800"]}'
    )
    (folder / CONFIG).write_text("\ufeff" + odd, "utf-8")
    found = Tokenizer.open(folder)
    assert (found.end_ids, found.notices) == ((MARKS["<|im_end|>"],), ())
    assert found.encode(TEXT)[0] == MARKS["<|im_start|>"]


def test_a_letter_that_fills_up_stays_a_letter(tmp_path: Path) -> None:
    found = Tokenizer.open(folder_of(tmp_path, 3, tokenizer_config={"pad_token": "!"}))
    assert found.decode(found.encode("So!")) == "So!"


def test_flags_of_other_files_and_what_is_special_anywhere(tmp_path: Path) -> None:
    entry = {"content": "<kept>", **ENTRY, "lstrip": True}
    files = {"added_tokens_decoder": {"400": entry}}
    found = Tokenizer.open(folder_of(tmp_path, 402, tokenizer_config=files))
    assert found.encode("a   <kept>", special=False)[1:] == [400]
    assert 400 in found.special_ids


def test_damaged_files_cost_themselves_alone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, tokenizer_config={"additional_special_tokens": [*MARKS, 5, None, {}], "eos_token": 7})
    (folder / MAP).write_bytes(b'{"bos_token": \xff}')
    (folder / ADDED).write_text("[1]")
    found = Tokenizer.open(folder)
    assert found.encode(TEXT)[0] == 1
    assert [notice.split(",")[0] for notice in found.notices] == [
        f"The file {name} cannot be read" for name in (MAP, ADDED)
    ]


def test_names_of_templates_come_from_both_files(tmp_path: Path) -> None:
    config = {
        "eos_token": "<|im_end|>",
        "image_token": {"content": "<|image|>"},
        "pad_token": "a",
        "chat_template": "x",
    }
    others = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": "b",
              "extra_special_tokens": {"boi_token": "<|boi|>"}}  # fmt: skip
    folder = folder_of(tmp_path, 3, tokenizer_config=config, special_tokens_map=others)
    assert ChatTemplate.open(folder).special_tokens == {
        "bos_token": "<s>", "eos_token": "<|im_end|>", "image_token": "<|image|>", "pad_token": "a",
        "boi_token": "<|boi|>",
    }  # fmt: skip
    notices = Tokenizer.open(folder).notices
    assert len(notices) == 1
    assert (
        "tokenizer_config.json gives '<|im_end|>' as the eos_token, and special_tokens_map.json gives '</s>'"
        in notices[0]
    )


def doubts(tokenizer: Tokenizer, source: str, **tokens: str) -> list[str]:
    return list(chat_doubts(tokenizer, ChatTemplate(source, tokens), "m"))


def test_marks_that_are_cut_up_are_told(tmp_path: Path) -> None:
    whole, cut = Tokenizer.open(folder_of(tmp_path, 3)), Tokenizer.open(folder_of(tmp_path, 1))
    assert doubts(whole, CHATML) == []
    assert [text.split(",")[:2] for text in doubts(cut, CHATML)] == [
        ["The chat template of m writes <|im_start|>", " <|im_end|>"]
    ]


def test_marks_of_a_gguf_file_that_are_cut_up() -> None:
    """A converter wrote them as ordinary tokens."""
    tokens = ["<unk>", "<s>", "</s>", "<start_of_turn>", "[INST]", *(f"<0x{byte:02X}>" for byte in range(256))]
    metadata = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 3] + [6] * 256, "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": "<start_of_turn>[INST]{{ bos_token }}{{ pad_token }}",
    }  # fmt: skip
    text = FileText(metadata)
    template = text.chat_template()
    assert template.special_tokens["pad_token"] == "</s>"
    (notice,) = chat_doubts(text.tokenizer(), template, "m")
    assert notice.startswith("The chat template of m writes <start_of_turn>, which its tokenizer cuts into several")


@pytest.mark.parametrize("style", STYLES)
def test_templates_in_use_raise_no_doubts(style: str, tmp_path: Path) -> None:
    for kind in ("chatml", "sentencepiece"):
        tokenizer = Tokenizer.open(write_folder(tmp_path / kind, kind))
        assert doubts(tokenizer, STYLES[style], bos_token="<s>", eos_token="</s>") == []


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("{{ bos_token }}{{ image_token + 'x' }}", ["bos_token", "image_token"]),
        ("{% if bos_token %}{{ bos_token }}{% endif %}{{ eos_token if eos_token is defined }}", []),
        ("{{ bos_token | default('') }}{{ eos_token or '' }}{{ messages }}", []),
        ("{% set a_token = 'x' %}{{ a_token }}{% macro m(b_token) %}{{ b_token }}{% endmacro %}{{ m('y') }}", []),
        ("{% for", []),
    ],
)
def test_names_without_a_value_are_told(source: str, missing: list[str]) -> None:
    assert missing_tokens(ChatTemplate(source)) == missing
    assert missing_tokens(ChatTemplate(source, dict.fromkeys(missing, "x"))) == []


def test_the_tokenizers_without_other_files_are_left_as_they_are(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 3)
    assert (
        Tokenizer.open(folder).inner.to_str() == tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).to_str()
    )

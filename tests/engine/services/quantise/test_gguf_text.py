"""A tokenizer whose marks and ends are in several files, in the words of GGUF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.formats.generation import GenerationConfig
from engine.formats.gguf.tokenizer import FileText
from engine.services.quantise.gguf_text import metadata
from engine.services.training.errors import RecipeError
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.text.token_folders import DECODER, TEXT, folder_of


def test_marks_and_ends_are_kept(tmp_path: Path) -> None:
    """<|im_end|> and <|endoftext|> are known by their names, so that the keys are free for the two others."""
    folder = folder_of(
        tmp_path,
        402,
        tokenizer_config={"added_tokens_decoder": DECODER, "eos_token": "<|im_end|>"},
        chat_template={"chat_template": {"default": "d", "tool_use": "t"}},
    )
    tokenizer, template = Tokenizer.open(folder), ChatTemplate.open(folder)
    keys = metadata(tokenizer, template, GenerationConfig(), [2, 0, 400, 401], 402)
    text = FileText({"general.architecture": "llama", **keys})
    assert text.tokenizer().encode(TEXT) == tokenizer.encode(TEXT)
    assert set(text.special.eos_ids) == {0, 2, 400, 401}
    assert text.special.names["eos_token"] == "<|im_end|>"
    assert (text.chat_template().source, text.chat_template().for_tools) == ("d", "t")
    with pytest.raises(RecipeError, match="end with any of 5 tokens, more than GGUF has words for"):
        metadata(tokenizer, template, GenerationConfig(), [2, 0, 399, 400, 401], 402)


def test_a_tokenizer_without_merges_is_refused(tmp_path: Path) -> None:
    """An empty list cannot be written, and a file without it is not read."""
    folder = folder_of(tmp_path, 402)
    state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    state["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    with pytest.raises(RecipeError, match="that GGUF has no name for"):
        metadata(Tokenizer.open(folder), ChatTemplate.open(folder), GenerationConfig(), [0], 402)

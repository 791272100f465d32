"""Encoding and decoding against transformers, on tokenizers trained here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.protocol import ChatMessage
from engine.text.prompt import prompt_ids
from engine.text.stream import TextStream
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import CHATML, TEXT, write_folder
from tests.engine.text.token_folders import PLACES, folder_of
from tests.engine.text.token_folders import TEXT as MARKED

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("kind", ["chatml", "llama3", "sentencepiece"])
def test_same_ids_and_same_text(kind: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, kind)
    ours, theirs = Tokenizer.open(folder), transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for text in [*TEXT[:4], "", " ", "a <|im_end|></s> b", "\u0301\u200d\n\r\n"]:
        for special in (True, False):
            assert ours.encode(text, special=special) == theirs.encode(text, add_special_tokens=special)
        ids = ours.encode(text)
        expected = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        stream = TextStream(ours)
        assert "".join(stream.push(i).text for i in ids) + stream.flush().text == expected


@pytest.mark.parametrize("files", PLACES)
def test_tokens_that_other_files_register(files: dict[str, Any], tmp_path: Path) -> None:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHATML} | files.get("tokenizer_config", {})
    folder = folder_of(tmp_path, **(files | {"tokenizer_config": config}))
    ours, theirs = Tokenizer.open(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.encode(MARKED) == theirs(MARKED)["input_ids"]
    chat = theirs.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )
    assert prompt_ids(ours, ChatTemplate.open(folder), [ChatMessage.of("user", "hi")]) == chat

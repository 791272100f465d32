"""Encoding and decoding against transformers, on tokenizers trained here."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.text.stream import TextStream
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import TEXT, write_folder

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

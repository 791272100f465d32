"""Byte-level tokenizers out of GGUF metadata against tokenizers and transformers, on vocabularies trained here."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
import tokenizers

from engine.formats.gguf.container import read_header
from engine.formats.gguf.pretokenizers import PRE_TOKENIZERS
from engine.formats.gguf.tokenizer import FileText
from engine.protocol import ChatMessage
from tests.conformance import gguf_tokenizers as made
from tests.conformance.gguf_references import KINDS, read_by_transformers, reference, streamed, tokenizer, write_file

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("pre", KINDS)
def test_byte_level_ids_and_texts(pre: str) -> None:
    theirs = reference(pre)
    ours = tokenizer(made.byte_level_metadata(theirs, pre))
    assert ours.inner.get_vocab(True) == theirs.get_vocab(True)
    for text in (*made.texts(), "a unreachable b", "", " ", "a<|im_end|>\n b<think> c     d<|im_end"):
        ids = ours.encode(text)
        assert ids == theirs.encode(text).ids, text
        assert streamed(ours, ids) == ours.decode(ids) == theirs.decode(ids)
        if "<|im_end|>" not in text:
            assert ours.decode(ids) == (unicodedata.normalize("NFC", text) if theirs.normalizer else text)


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer", "CohereTokenizer"])
def test_the_tokenizers_of_transformers(name: str) -> None:
    """Its classes carry the models' own pre-tokenizers and normalizers."""
    pre = {"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2", "Qwen3_5Tokenizer": "qwen35"}.get(name, "command-r")
    base = reference(pre)
    metadata = made.byte_level_metadata(base, pre)
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    theirs = getattr(transformers, name)(vocab=base.get_vocab(True), merges=merges)
    ours = tokenizer(metadata)
    for text in made.texts(300, seed=3):
        if "    " not in text:  # an added token here, not there
            assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen35", "tekken", "gpt-4o", "dbrx", "gpt-2", "qwen2"])
def test_what_transformers_reads_from_the_file(pre: str, tmp_path: Path) -> None:
    """The way through a file, written by the package gguf; transformers composes no characters and knows no words."""
    metadata = made.byte_level_metadata(reference(pre), pre)
    theirs = read_by_transformers(metadata, tmp_path)
    ours = tokenizer(metadata)
    for text in made.texts(300, seed=4):
        composed = unicodedata.normalize("NFC", text).replace("    ", " ")  # it loses added tokens of spaces
        assert ours.encode(composed) == theirs.encode(composed, add_special_tokens=False).ids


def test_the_engines_own_way_through_a_file(tmp_path: Path) -> None:
    metadata = made.byte_level_metadata(reference("qwen2"), "qwen2")
    metadata["tokenizer.chat_template"] = "{{ messages[0].content }}{{ eos_token }}"
    found, _ = read_header(write_file(metadata, tmp_path / "model.gguf"))
    text = FileText(found)
    assert text.tokenizer().encode("Hello you") == reference("qwen2").encode("Hello you").ids
    assert text.chat_template().render([ChatMessage.of("user", "Hi")]) == "Hi<|im_end|>"


def test_deepseek_cuts_as_its_paper_says() -> None:
    """DeepSeek LLM, section 2.1: newlines, marks and Chinese apart, digits one by one."""
    cut = tokenizers.Tokenizer(tokenizers.models.BPE())
    PRE_TOKENIZERS["deepseek-llm"].apply_to(cut)
    text = "Hello World 2024, 你好ab!?\n x"
    pieces = [text[start:end] for _, (start, end) in cut.pre_tokenizer.pre_tokenize_str(text)]
    assert pieces == ["Hello", " World", " ", "2", "0", "2", "4", ",", " ", "你好", "ab", "!?", "\n", " x"]


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_loses_nothing(pre: str) -> None:
    metadata = made.byte_level_metadata(reference("gpt-2"), pre)
    ours = tokenizer(metadata)
    for text in made.texts(200, seed=5):
        composed = unicodedata.normalize("NFC", text)
        assert ours.decode(ours.encode(composed)) == composed


def test_padding_of_the_table_is_no_part_of_the_vocabulary() -> None:
    metadata = made.byte_level_metadata(reference("gpt-2"), "gpt-2")
    plain = tokenizer(metadata)
    count = len(metadata["tokenizer.ggml.tokens"])
    padded = {
        **metadata,
        "tokenizer.ggml.tokens": [*metadata["tokenizer.ggml.tokens"], *(f"[PAD{count + i}]" for i in range(128))],
        "tokenizer.ggml.token_type": [*metadata["tokenizer.ggml.token_type"], *[5] * 128],
    }
    assert tokenizer(padded).inner.get_vocab() == plain.inner.get_vocab()
    assert tokenizer(padded).difference(plain) == ""

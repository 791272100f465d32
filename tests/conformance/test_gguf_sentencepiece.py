"""SentencePiece tokenizers out of GGUF metadata against sentencepiece and transformers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.base.errors import CheckpointError
from engine.formats.gguf.tokenizer import FileText
from tests.conformance import gguf_tokenizers as made
from tests.conformance.gguf_references import read_by_transformers, streamed, tokenizer, write_file

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_sentencepiece_ids_and_texts(prefix: bool, byte_fallback: bool) -> None:
    model = made.sentencepiece_model(prefix, byte_fallback)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = tokenizer(made.sentencepiece_metadata(model, prefix))
    for text in (*made.texts(), *made.RUNS, "", " ", "  ", "▁"):
        ids = ours.encode(text, special=False)
        assert ids == theirs.encode(text), text
        if byte_fallback:  # without it, unknown characters are lost
            assert streamed(ours, ids) == ours.decode(ids) == theirs.decode(ids) == text.replace("▁", " ")
        assert ours.encode(text) == [1, *ids]


def test_sentencepiece_pieces_that_can_be_put_together_in_several_ways() -> None:
    model = made.sentencepiece_model(runs=True)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = tokenizer(made.sentencepiece_metadata(model))
    for mark in " =-a":
        for length in range(200):
            text = f"y{mark * length}x{mark * (length % 13)}"
            assert ours.encode(text, special=False) == theirs.encode(text)


@pytest.mark.parametrize("architecture", ["llama", "phi3"])
def test_sentencepiece_as_transformers_reads_it(architecture: str, tmp_path: Path) -> None:
    metadata = made.sentencepiece_metadata(made.sentencepiece_model())
    metadata["general.architecture"] = architecture
    theirs = read_by_transformers(metadata, tmp_path)
    ours = tokenizer(metadata)
    for text in made.texts(300, seed=6):
        # transformers gives a text that begins with a space no second one, except to phi3's; sentencepiece does.
        if architecture == "phi3" or not text.startswith(" "):
            assert ours.encode(text, special=False) == theirs.encode(text, add_special_tokens=False).ids


def test_sentencepiece_special_tokens() -> None:
    metadata = made.sentencepiece_metadata(made.sentencepiece_model())
    ours = tokenizer(metadata)
    end = ours.token_id("<|end|>")
    assert ours.special_ids == {0, 1, 2, end}
    assert ours.encode("<|end|>", special=False) == [end]
    assert ours.encode("a<|end|> \n b", special=False).count(end) == 1
    assert ours.decode(ours.encode("x<|end|>y")) == "x y"  # each text after a special token gets a space
    metadata["general.architecture"] = "phi3"  # whose special tokens take the white space after them
    taken = tokenizer(metadata)
    assert taken.encode("a<|end|> \n b") == taken.encode("a<|end|>b")


def test_only_the_first_text_gets_a_space_in_the_third_mistral() -> None:
    metadata = made.sentencepiece_metadata(made.sentencepiece_model())
    metadata["tokenizer.ggml.tokens"][3] = "[INST]"
    ours = tokenizer(metadata)
    marks = [ours.token(i) for i in ours.encode("[INST] a[INST]a", special=False)]
    assert marks == ["[INST]", "▁a", "[INST]", "a"]
    assert ours.token(ours.encode("a", special=False)[0]) == "▁a"


def test_gemmas_tokenizer_is_sentencepieces_and_llama_cpps(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    model = made.gemma_model()
    metadata = made.gemma_metadata(model)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    other = llama_cpp.Llama(str(write_file(metadata, tmp_path / "model.gguf")), vocab_only=True, verbose=False)
    text = FileText(metadata)
    ours = text.tokenizer()
    assert [ours.token(index) for index in text.special.eos_ids] == ["<eos>", "<end_of_turn>"]
    turns = "<start_of_turn>user\nHi there<end_of_turn>\n<start_of_turn>model\n"
    for sample in (*made.texts(300), "", "  ", "a  b   c    d", "x\n\ny\n\n\n\nz", " <table> </b>x", turns):
        ids = ours.encode(sample)
        if "\0" not in sample:
            assert ids == other.tokenize(sample.encode(), add_bos=True, special=True), sample
        assert ids == [2, *reference.encode(sample)], sample
        if sample != turns:
            assert streamed(ours, ids) == ours.decode(ids) == sample
    other.close()


def test_a_large_vocabulary_is_quick() -> None:
    metadata = made.sentencepiece_metadata(made.sentencepiece_model())
    tokens = [*metadata["tokenizer.ggml.tokens"][:259], *(f"▁{index:x}" for index in range(200_000))]
    metadata["tokenizer.ggml.tokens"] = tokens
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"][:259], *[1] * 200_000]
    metadata["tokenizer.ggml.scores"] = [0.0 - index for index in range(len(tokens))]
    began = time.perf_counter()
    tokenizer(metadata)
    assert time.perf_counter() - began < 20  # one second, on a machine with nothing else to do


@pytest.mark.slow
def test_tokens_that_imply_endless_merges_are_refused() -> None:
    metadata = made.sentencepiece_metadata(made.sentencepiece_model())
    pieces = ["ab"]
    pairs = [(a + b) for a in "abcdefghijkl" for b in "mnopqrst"]
    many = list(dict.fromkeys(text for pair in pairs for text in ((pair * 256)[:n] for n in range(1, 241))))
    tokens = [*metadata["tokenizer.ggml.tokens"], *pieces, *many]
    tokens = list(dict.fromkeys(tokens))
    metadata |= {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.scores": [0.0] * len(tokens),
    }
    with pytest.raises(CheckpointError, match="implies more than"):
        tokenizer(metadata)

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, pre_tokenizers

from engine.text.patience import Patience
from engine.text.tokenizer import PieceRules, Tokenizer, TokenizerError, piece_bytes, piece_rules
from tests.engine.text.samples import TEXT, trained, write_folder


def made(kind: str) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(trained(kind)))


@pytest.mark.parametrize("kind", ["chatml", "llama3", "sentencepiece"])
def test_bytes_of_the_tokens_are_the_text(kind: str) -> None:
    tokenizer = made(kind)
    for text in TEXT[:4]:
        ids = tokenizer.encode(text, special=False)
        joined = b"".join(tokenizer.id_to_bytes(i) for i in ids).decode()
        assert joined.removeprefix(" " if kind == "sentencepiece" else "") == text


def test_special_controls_begin_of_text() -> None:
    tokenizer = made("llama3")
    bos = tokenizer.token_id("<|begin_of_text|>")
    assert tokenizer.encode("hello")[0] == bos
    assert tokenizer.encode("hello", special=False)[0] != bos
    assert tokenizer.id_to_bytes(bos) == b""
    assert tokenizer.piece(bos) == "<|begin_of_text|>"


def test_vocabulary_counts_added_tokens() -> None:
    tokenizer = made("chatml")
    assert tokenizer.vocabulary == 402
    assert tokenizer.token(401) == "überall"
    assert tokenizer.token(402) == ""
    assert tokenizer.id_to_bytes(402) == b""


def test_no_silent_truncation(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_str(trained("chatml"))
    inner.enable_truncation(4)
    inner.enable_padding(length=64)
    inner.save(str(tmp_path / "tokenizer.json"))
    ids = Tokenizer.open(tmp_path).encode("a long enough text for more than four tokens")
    assert len(ids) > 4
    assert Tokenizer.open(tmp_path).decode(ids) == "a long enough text for more than four tokens"


def test_missing_and_broken_files_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"has no tokenizer.json"):
        Tokenizer.open(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": {}}')
    with pytest.raises(TokenizerError, match=r"cannot be read .* Download it again"):
        Tokenizer.open(tmp_path)


def test_difference_names_the_first_token(tmp_path: Path) -> None:
    one, same, other = made("chatml"), made("chatml"), made("llama3")
    assert one.difference(same) == ""
    assert "402 and 402" not in one.difference(other)
    changed = json.loads(trained("chatml"))
    vocabulary = changed["model"]["vocab"]
    vocabulary["!"], vocabulary['"'] = vocabulary['"'], vocabulary["!"]
    swapped = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(changed)))
    assert "first at token 3 ('!')" in one.difference(swapped)


def test_rules_follow_the_decoder() -> None:
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    llama = {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]}
    assert piece_rules(llama) == PieceRules(replace=(("▁", " "),), byte_fallback=True, strip_leading=1)
    assert piece_rules({"type": "Sequence", "decoders": [replace, strip]}) is None
    assert piece_rules({"type": "WordPiece"}) is None
    assert piece_rules(None) is None
    assert piece_rules({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}) == PieceRules(
        replace=(("▁", " "),)
    )


def test_piece_bytes() -> None:
    rules = PieceRules(replace=(("▁", " "),), byte_fallback=True)
    assert piece_bytes("<0xE2>", rules) == b"\xe2"
    assert piece_bytes("▁a", rules) == b" a"
    assert piece_bytes("<0xE2>", PieceRules(replace=(("▁", " "),))) == b"<0xE2>"
    assert piece_bytes("Ġa", PieceRules(byte_level=True)) == b" a"
    assert piece_bytes("日", PieceRules(byte_level=True)) == "日".encode()


def test_open_reads_a_folder(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path / "model", "sentencepiece"))
    ids = tokenizer.encode("héllo 🎉")
    assert ids[0] == 1
    assert tokenizer.decode(ids) == "héllo 🎉"


@pytest.mark.parametrize("kind", ["chatml", "llama3", "sentencepiece", "metaspace", "wordpiece"])
def test_ids_are_those_of_the_librarys_plain_call(kind: str) -> None:
    tokenizer = made(kind)
    for text in [*TEXT[:4], "", "<|im_end|> <s> [SEP]", " ".join(TEXT)]:
        for special in (True, False):
            ids = tokenizer.inner.encode(text, add_special_tokens=special).ids
            assert tokenizer.encode(text, special=special) == ids
            assert tokenizer.decode(ids) == tokenizer.inner.decode(ids)


def test_other_threads_run_while_a_long_text_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "run", lambda self, call, seconds: call())  # in this thread
    tokenizer, started, done, turns = made("chatml"), threading.Event(), threading.Event(), 0

    def other() -> None:
        nonlocal turns
        started.set()
        while not done.is_set():
            turns += 1
            time.sleep(0)

    def turns_meanwhile() -> int:
        before = turns
        tokenizer.encode("x" * 200_000)
        return turns - before

    thread, interval = threading.Thread(target=other), sys.getswitchinterval()
    thread.start()
    try:
        assert started.wait(300)
        sys.setswitchinterval(1000)  # the interpreter takes turns only where a call lets it
        assert any(turns_meanwhile() for _ in range(20))
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


def normalised(kind: str, normalizer: normalizers.Normalizer) -> Tokenizer:
    inner = tokenizers.Tokenizer.from_str(trained(kind))
    inner.normalizer = normalizer
    return Tokenizer(inner)


COMPOSING = normalised("chatml", normalizers.NFC())


@given(st.text(max_size=200) | st.text("\u212a\u1100\u1161\u11a8Ke\u0301\u0327\u1fef\U0002f800 ", max_size=200))
@pytest.mark.parametrize(
    "tokenizer", [made("chatml"), made("sentencepiece"), COMPOSING], ids=["bytes", "pieces", "nfc"]
)
def test_no_token_stands_for_more_than_the_longest(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.longest is not None
    assert len(text.encode()) <= tokenizer.longest * len(tokenizer.encode(text, special=False))


def test_where_text_may_vanish_there_is_no_longest_token() -> None:
    assert made("wordpiece").longest is None
    assert made("metaspace").longest is None
    assert normalised("chatml", normalizers.NFKC()).longest is None
    assert normalised("chatml", normalizers.Replace("  ", " ")).longest is None
    assert normalised("chatml", normalizers.Replace(tokenizers.Regex(" +"), " ")).longest is None
    stripping = tokenizers.Tokenizer.from_str(trained("chatml"))
    stripping.add_tokens([AddedToken("<end>", rstrip=True)])
    assert Tokenizer(stripping).longest is None
    apart = tokenizers.Tokenizer.from_str(trained("chatml"))
    apart.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert Tokenizer(apart).longest is None

"""Hostile tokenizer.json files, and texts that an honest one takes for ever: a sentence, soon."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from engine.formats.gguf.pretokenizers import PRE_TOKENIZERS
from engine.text import tokenizer
from engine.text.patience import Panicked, Patience, StillBusy, TookTooLong
from engine.text.template import PromptError
from engine.text.tokenizer import Tokenizer as Ours
from engine.text.tokenizer import TokenizerError
from engine.text.tokenizer_bounds import TooMuch, check_expression, judged
from tests.engine.text.samples import TEXT, trained

KINDS = ("chatml", "llama3", "sentencepiece", "metaspace", "wordpiece")
Change = Callable[[dict[str, Any]], Any]


def replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def expression(found: str, new: str = "x") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": found}, "content": new}


def split(found: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": found}, "behavior": "Isolated", "invert": False}


def sequence(key: str, *steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", key: list(steps)}


def nested(depth: int) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "NFC"}
    for _ in range(depth):
        step = sequence("normalizers", step)
    return step


def part(name: str, value: Any) -> Change:
    return lambda file: file.update({name: value})


def model(**values: Any) -> Change:
    return lambda file: file["model"].update(values)


def around(**values: Any) -> Change:
    template = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": []}
    named = {"special_tokens": {"x": {"id": "x", "ids": [1] * 900, "tokens": ["x"] * 900}}}
    return part("post_processor", template | named | values)


TEXT_PART = {"Sequence": {"id": "A", "type_id": 0}}
TOKEN_PART = {"SpecialToken": {"id": "x", "type_id": 0}}
TABLE = base64.b64encode((4).to_bytes(4, "little") + bytes(4) + b"y" * 2000 + b"\0").decode()
HOSTILE: dict[str, tuple[Change, str]] = {
    "six times a hundred": (part("normalizer", sequence("normalizers", *[replace("e", "e" * 100)] * 6)), "longer"),
    "sixty times two": (part("decoder", sequence("decoders", *[replace("e", "ee")] * 60)), "longer"),
    "an expression that matches nothing": (part("normalizer", expression("", "e" * 2000)), "longer"),
    "prepended": (part("normalizer", {"type": "Prepend", "prepend": "e" * 2000}), "longer"),
    "a table": (part("normalizer", {"type": "Precompiled", "precompiled_charsmap": TABLE}), "longer"),
    "a damaged table": (part("normalizer", {"type": "Precompiled", "precompiled_charsmap": "?"}), "damaged"),
    "no trie": (part("normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////w=="}), "damaged"),
    "forms between": (
        part("normalizer", sequence("normalizers", *[{"type": "NFKC"}, replace("ا", "ﷺ")] * 5)), "longer"
    ),
    "bytes of bytes": (part("pre_tokenizer", sequence("pretokenizers", *[{"type": "ByteLevel"}] * 9)), "longer"),
    "many steps": (part("normalizer", sequence("normalizers", *[{"type": "NFC"}] * 65)), "64 steps"),
    "deep steps": (part("normalizer", nested(20)), "nested"),
    "very deep steps": (part("normalizer", nested(300)), "nested"),
    "no type": (part("normalizer", {"pattern": {"String": "e"}, "content": "e" * 9999}), "without a type"),
    "unknown type": (part("normalizer", {"type": "Eval"}), "'Eval'"),
    "unknown decoder": (part("decoder", {"type": "Eval"}), "'Eval'"),
    "both patterns": (
        part("normalizer", replace("e", "x") | {"pattern": {"String": "e", "Regex": "e"}}), "not text"
    ),
    "a decoder's expression": (part("decoder", expression("e")), "expressions in what a model answers"),
    "exponential": (part("pre_tokenizer", split("(a+)+$")), "repeats repetitions"),
    "exponential, normalised": (part("normalizer", expression("(?:a|b*)*c")), "repeats repetitions"),
    "counted": (part("pre_tokenizer", split("((a{1000}){1000}){1000}")), "repeats repetitions"),
    "a long expression": (part("pre_tokenizer", split("a" * 9000)), "too long"),
    "the text twice": (around(single=[TEXT_PART, TEXT_PART]), "repeats each text"),
    "a hundred thousand tokens": (around(single=[TEXT_PART, *[TOKEN_PART] * 100]), "around a text"),
    "a long mark": (model(unk_token="e" * 1_000_000), "marks words"),
    "long words": (model(max_input_chars_per_word=1 << 40), "long words"),
    "a long token": (model(vocab={"e" * 100_000: 0}), "long token"),
    "a large number": (model(vocab={"a": 1 << 31}), "beyond all bounds"),
    "a strip": (part("decoder", {"type": "Strip", "content": "a", "start": 1 << 63, "stop": 0}), "absurdly much"),
    "one number": (model(vocab={"a": 0, "b" * 100: 0}), "one number"),
    "a large vocabulary": (model(vocab={"a": 0}, merges=[""] * (5 << 20)), "large vocabulary"),
    "many added tokens": (part("added_tokens", [{"id": 1, "content": "a"}] * 200_000), "absurdly many"),
    "a long added token": (part("added_tokens", [{"id": 1, "content": "a" * 9000}]), "long tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_before_anything_is_built(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, says = HOSTILE[name]
    file = json.loads(trained("chatml"))
    change(file)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    monkeypatch.setattr(tokenizer.tokenizers, "Tokenizer", None)
    with pytest.raises(TokenizerError) as refused:
        Ours.open(tmp_path)
    text = str(refused.value)
    assert says in text
    assert text.startswith(f"The file tokenizer.json of {tmp_path.name} ")
    assert text.endswith(".")
    assert len(text) < 400


def test_what_stands_twice_is_read_as_it_was_judged() -> None:
    """A reader that takes the first of two would be judged by one and built of the other."""
    bomb = json.dumps(sequence("normalizers", *[replace("e", "e" * 100)] * 6))
    file = trained("chatml").strip().removesuffix("}")
    made = judged(f'{file}, "normalizer": {bomb}, "normalizer": null}}'.encode())
    assert made.count(b'"normalizer"') == 1
    assert Tokenizer.from_buffer(made).normalizer is None


@pytest.mark.parametrize("kind", KINDS)
def test_honest_files_are_read_as_they_are(kind: str) -> None:
    theirs, ours = Tokenizer.from_str(trained(kind)), Tokenizer.from_buffer(judged(trained(kind).encode()))
    assert Ours(ours).growth <= 12
    assert json.loads(ours.to_str()) == json.loads(theirs.to_str())
    assert [ours.encode(text).ids for text in TEXT] == [theirs.encode(text).ids for text in TEXT]


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_the_expressions_of_all_families_are_fine(name: str) -> None:
    made = Tokenizer(BPE())
    PRE_TOKENIZERS[name].apply_to(made)
    assert judged(made.to_str().encode())
    assert Ours(made).growth <= 12


FORMS = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
SPACES = normalizers.Replace(Regex(" {2,}"), " ")


@pytest.mark.parametrize(
    ("steps", "growth"),
    [
        ([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")], 2),
        ([normalizers.Replace(" ", "▁")], 1),
        ([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()], 18),
        ([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), *FORMS, SPACES], 36),
        ([normalizers.Nmt(), normalizers.NFKC(), SPACES], 36),
        ([normalizers.BertNormalizer()], 12),
    ],
    ids=["llama 2", "gemma", "clip", "albert", "t5", "bert"],
)
def test_the_normalisers_of_real_families_are_fine(steps: list[Any], growth: int) -> None:
    made = Tokenizer(BPE())
    made.normalizer = normalizers.Sequence(steps)
    assert judged(made.to_str().encode())
    assert Ours(made).growth == growth


@pytest.mark.parametrize(
    "found", [r"\p{N}{1,3}", r"[^(\s|[.,!?…])]+", r"(?:a+)?b", r"[(+]+*?", r"\(a+\)+", "[]a(+]+", "(?:ab)?c*"]
)
def test_expressions_that_repeat_no_repetition(found: str) -> None:
    check_expression(found)


@pytest.mark.parametrize(
    "found", ["(a*)*", "((a+)b?)+", r"(?:\s+|x){2,}", "(a+){1,1000}", r"([)]+)+", "(a{5,})*", "(a+)?*$", "(a+){1}*"]
)
def test_expressions_that_repeat_repetitions(found: str) -> None:
    with pytest.raises(TooMuch):
        check_expression(found)


# --- in use --------------------------------------------------------------------------------------------------------


def spaces() -> Ours:
    """DeepSeek's: the square of a run of spaces."""
    made = Tokenizer(BPE(vocab={" ": 0, "a": 1}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+$"), "isolated")
    return Ours(made)


def test_a_text_holds_no_thread_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    made = spaces()
    monkeypatch.setattr(tokenizer, "PATIENCE", 0.01)
    with pytest.raises(PromptError, match="does not come to an end"):
        made.encode(" " * 12_000 + "a")
    with pytest.raises(PromptError, match="still at work on an earlier text"):
        made.encode("a")  # the one that was left still has its core
    for thread in threading.enumerate():
        if thread.name == "kvasir-tokenizer":
            thread.join()
    monkeypatch.undo()
    assert made.encode("a") == [1]


def test_a_panic_of_the_library_is_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    made = Tokenizer(BPE(vocab={"a": 0}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    with pytest.raises(PromptError, match=r"cannot read the text \(the library gave up\)"):
        Ours(made).encode("a" * 40 + "b")
    assert "retry-limit" in capfd.readouterr().err


def test_what_the_library_does_not_know_is_a_sentence() -> None:
    made = Ours(Tokenizer(Unigram([("a", -1.0)], unk_id=None)))
    with pytest.raises(PromptError, match="cannot read the text"):
        made.encode("b")


def test_what_a_text_may_become_is_bounded() -> None:
    made = Ours(Tokenizer(BPE(vocab={"a": 0}, merges=[])))
    made.growth = 1000
    with pytest.raises(PromptError, match="of 20,000 characters is too long"):
        made.encode("a" * 20_000)
    assert made.encode("a" * 10) == [0] * 10


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(trained("chatml"))
    made = Ours.open(tmp_path)
    assert made.decode(made.encode("a\ud800b\udfff")) == "a\ufffdb\ufffd"


def test_patience_passes_on_what_happens() -> None:
    patience = Patience()
    assert patience.run(lambda: 3, 10) == 3
    with pytest.raises(ZeroDivisionError):
        patience.run(lambda: 1 // 0, 10)
    stop = threading.Event()
    with pytest.raises(TookTooLong):
        patience.run(stop.wait, 0.01)
    with pytest.raises(StillBusy):
        patience.run(lambda: 3, 10)
    stop.set()
    patience, began, go = Patience(), threading.Barrier(3), threading.Event()

    def stuck() -> None:
        with pytest.raises(TookTooLong):
            patience.run(lambda: (began.wait(), go.wait()), 2)

    both = [threading.Thread(target=stuck) for _ in range(2)]
    for thread in both:
        thread.start()
    began.wait(10)
    for thread in both:
        thread.join()
    assert len(patience._left) == 2
    with pytest.raises(StillBusy):
        patience.run(lambda: 3, 10)
    go.set()

    def panic() -> None:
        raise KeyboardInterrupt

    with pytest.raises(Panicked):
        Patience().run(panic, 10)

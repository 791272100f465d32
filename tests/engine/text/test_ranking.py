"""Prompts of a query and a document, whole and cut off."""

from __future__ import annotations

import string

import tokenizers
from tokenizers.processors import TemplateProcessing

from engine.text.ranking import INSTRUCTION, judge_prompt, pair_prompt
from engine.text.tokenizer import Tokenizer

LETTERS = string.printable


def made(pair: str) -> Tokenizer:
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={c: i for i, c in enumerate(LETTERS)}, merges=[]))
    inner.decoder = tokenizers.decoders.ByteLevel()
    if pair:
        inner.post_processor = TemplateProcessing("[ $A ]", pair, [(mark, LETTERS.index(mark)) for mark in "[]"])
    return Tokenizer(inner)


def test_two_texts_and_what_stands_around_them() -> None:
    bert, roberta = made("[ $A ] $B:1 ]:1"), made("[ $A ] ] $B ]")
    prompt = pair_prompt(bert, "abc", "defgh")
    assert bert.decode(prompt.ids, skip_special=False) == "[abc]defgh]"
    assert bert.decode(prompt.document) == "defgh"
    assert prompt.typed == 5
    cut = prompt.cut(2)
    assert (bert.decode(cut.ids, skip_special=False), cut.typed) == ("[abc]de]", 5)
    other = pair_prompt(roberta, "abc", "defgh")
    assert (roberta.decode(other.ids, skip_special=False), other.typed) == ("[abc]]defgh]", 0)


def test_a_text_of_nothing_and_a_lone_surrogate() -> None:
    tokenizer = made("[ $A ] $B:1 ]:1")
    assert tokenizer.decode(pair_prompt(tokenizer, "abc", "").ids, skip_special=False) == "[abc]]"
    assert tokenizer.decode(pair_prompt(tokenizer, "a\ud800", "b").ids, skip_special=False) == "[a]b]"


def test_a_question_for_yes_or_no() -> None:
    tokenizer = made("")
    prompt = judge_prompt(tokenizer, "wh{at}?", "th{i}s.")
    text = tokenizer.decode(prompt.ids)
    assert text.endswith(
        f"<Instruct>: {INSTRUCTION}\n<Query>: wh{{at}}?\n<Document>: th{{i}}s.<|im_end|>\n<|im_start|>assistant\n"
        "<think>\n\n</think>\n\n"
    )
    assert tokenizer.decode(prompt.document) == "th{i}s."
    cut = judge_prompt(tokenizer, "what?", "this.", "Find it").cut(2)
    assert "<Instruct>: Find it\n<Query>: what?\n<Document>: th<|im_end|>" in tokenizer.decode(cut.ids)

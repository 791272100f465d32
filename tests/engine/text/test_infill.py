"""Prompts for the middle of a text, in the marks of each family."""

from __future__ import annotations

import pytest

from engine.text.infill import MARKS, FillMarks, OtherFile, infill_ids
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import byte_level

EXPECTED = {
    FillMarks("[PREFIX]", "[SUFFIX]"): "[SUFFIX]b\n[PREFIX]a ",
    FillMarks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"): "<｜fim▁begin｜>a <｜fim▁hole｜>b\n<｜fim▁end｜>",
}


@pytest.mark.parametrize("marks", MARKS)
def test_the_gap_is_marked_as_the_family_does(marks: FillMarks) -> None:
    tokenizer = Tokenizer(byte_level([mark for mark in marks if mark]))
    ids = infill_ids(tokenizer, "a ", "b\n")
    assert ids is not None
    text = tokenizer.decode(ids, skip_special=False)
    assert text == EXPECTED.get(marks, f"{marks.prefix}a {marks.suffix}b\n{marks.middle}")


def test_other_files_stand_in_front_where_the_model_knows_files() -> None:
    marks, files = MARKS[0], [OtherFile("one.py", "x = 1")]
    plain, repository = (Tokenizer(byte_level([*marks, *more])) for more in ((), ("<|file_sep|>",)))
    gap = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"
    told = [
        tokenizer.decode(infill_ids(tokenizer, "a", "b", files) or [], skip_special=False)
        for tokenizer in (plain, repository)
    ]
    assert told == [gap, f"<|file_sep|>one.py\nx = 1\n<|file_sep|>{gap}"]
    assert infill_ids(Tokenizer(byte_level([])), "a", "b") is None

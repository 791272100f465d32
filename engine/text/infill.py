"""Prompts that ask for the middle of a text, for models that were trained to fill in ("fill in the middle", FIM).

Source: arXiv 2207.14255, the model cards of the families, and llama.cpp's server for several files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.text.tokenizer import Tokenizer


class FillMarks(NamedTuple):
    """Tokens before the text in front of the gap, before that behind it, and before the middle; where there is none of
    these, the text behind comes first."""

    prefix: str
    suffix: str
    middle: str = ""


MARKS = (
    FillMarks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 and 3 Coder, CodeGemma
    FillMarks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    FillMarks("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    FillMarks("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM 4
    FillMarks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    FillMarks("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    FillMarks("[PREFIX]", "[SUFFIX]"),  # Codestral
)
_FILE = "<|file_sep|>"
"""Begins a file in the prompts of models that were trained on whole repositories."""


class OtherFile(NamedTuple):
    name: str
    text: str


def infill_ids(tokenizer: Tokenizer, prefix: str, suffix: str, files: Sequence[OtherFile] = ()) -> list[int] | None:
    """Token ids of a prompt for the text between these two; None for a model without marks. ``files`` stand in front of
    it where the model knows several."""
    marks = next((each for each in MARKS if all(tokenizer.token_id(mark) is not None for mark in each if mark)), None)
    if marks is None:
        return None
    mark_of = {mark: id for mark in marks if mark and (id := tokenizer.token_id(mark)) is not None}
    before = [mark_of[marks.prefix], *tokenizer.encode(prefix, special=False)]
    behind = [mark_of[marks.suffix], *tokenizer.encode(suffix, special=False)]
    asked = [*before, *behind, mark_of[marks.middle]] if marks.middle else [*behind, *before]
    return [*tokenizer.encode("", special=True), *_files(tokenizer, files), *asked]


def _files(tokenizer: Tokenizer, files: Sequence[OtherFile]) -> list[int]:
    mark = tokenizer.token_id(_FILE)
    if mark is None or not files:
        return []
    told = [id for file in files for id in (mark, *tokenizer.encode(f"{file.name}\n{file.text}\n", special=False))]
    return [*told, mark]

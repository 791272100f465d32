"""The texts that speculation is measured on: code completion, a given text that is edited, free talk, and noise.

The bundled model edits a line at a time, and it says a line again when it finds it twice, so it gets lines; any other
model gets the kind of request that people send.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from engine.library.paths import bundled_model
from engine.loading.model import LoadedModel
from engine.protocol import ChatMessage, Sampling
from engine.services.experiments.sides import greedy
from engine.services.experiments.workloads.traces import words_of
from engine.text.template import PromptError

SHORTEST = 6
"""Tokens of an answer; a shorter one says nothing about speed."""
NOISE = 64
"""Tokens of a prompt of noise."""


class Prompt(NamedTuple):
    ids: list[int]
    sampling: Sampling


class Text(NamedTuple):
    """One kind of text. ``greedy``: other programs are measured on it too."""

    key: str
    title: str
    prompts: list[Prompt]
    greedy: bool = True


def texts(model: LoadedModel, tokens: int) -> list[Text]:
    """All kinds that the model has a tokenizer for, in answers of at most ``tokens`` tokens, code in twice as many."""
    endless, ending, code = greedy(tokens), greedy(tokens, ends=True), greedy(2 * tokens)
    found: list[Text] = []
    if model.files is not None:
        bundled = model.command.path == bundled_model().path
        edits, asked = (_LINES, _ABOUT_KVASIR) if bundled else (_EDITS, _TALK)
        edited = _prompts(model, _AGAIN, endless) if bundled else []
        found = [
            Text("code", "code that goes on", _prompts(model, _CODE, code)),
            Text("edit", "a given text edited", edited + _prompts(model, edits, ending, chat=True)),
            Text("talk", "free talk", _prompts(model, asked, ending, chat=True)),
        ]
    # Nothing predicts how random tokens go on that are drawn at a high temperature.
    words, drawn = words_of(model, 0), msgspec.structs.replace(endless, temperature=1.0)
    noise = [Prompt(words.some(NOISE), drawn) for _ in range(2)]
    return [*found, Text("noise", "noise", noise, greedy=False)]


def plain(model: LoadedModel) -> dict[str, tuple[str, ...]]:
    """The words of "talk" and "code", which is plain text to continue."""
    return {"talk": _ABOUT_KVASIR if model.command.path == bundled_model().path else _TALK, "code": _CODE}


def _prompts(model: LoadedModel, texts: Sequence[str], sampling: Sampling, chat: bool = False) -> list[Prompt]:
    return [Prompt(encoded(model, text, chat), sampling) for text in texts]


def encoded(model: LoadedModel, text: str, chat: bool) -> list[int]:
    """Token ids of plain text, or of a message where ``chat`` and the model's chat template takes any."""
    if chat:
        with suppress(PromptError):
            return model.encode_prompt([ChatMessage.of("user", text)])
    return model.encode_prompt(text)


_CODE = (
    '''class Vector:
    """A point in the plane."""

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other):
        return Vector(self.x - other.x, self.y - other.y)

    def __mul__(self, factor):
''',
    '''def read_lines(path):
    """Return the lines of a file without their ends."""
    lines = []
    with open(path) as file:
        for line in file:
            line = line.rstrip()
            if line:
                lines.append(line)
    return lines


def read_numbers(path):
    """Return the numbers of a file."""
''',
    """import unittest


class StackTest(unittest.TestCase):
    def test_empty(self):
        stack = Stack()
        self.assertEqual(len(stack), 0)

    def test_push(self):
        stack = Stack()
        stack.push(1)
        self.assertEqual(len(stack), 1)

    def test_pop(self):
""",
)
_AGAIN = tuple(
    line + "\n"
    for line in (
        "blue lamp quiet river seven tiger paper garden under silver door small wind old house orange table new window",
        "Maria has the amber key and Peter has the grey box and John has the yellow paper in the quiet garden",
    )
)
_LINES = (
    "Copy this: blue lamp quiet river seven tiger paper garden door",
    "Replace the word door with key in this text: the old house has a red door and door bell",
    "repeat the text: Each token carries how much its prediction counts in",
)
_ABOUT_KVASIR = (
    "What is speculative decoding?",
    "Explain paged attention and why pages are used.",
    "Why is decoding bound by memory?",
    "Tell me about the window and what the panel shows.",
)
_STORY = (
    "The harbour was quiet when the first boat came in. Marta tied it to the old post, counted the crates of fish, and "
    "called her brother Emil from the warehouse. The warehouse stood at the harbour since their grandfather had "
    "built it, and every crate that came over the harbour wall had passed through its doors. Emil wrote the numbers "
    "into the book, eleven crates of herring and four of cod, and closed the warehouse before the rain began."
)
_EDITS = (
    f"Repeat the following text exactly, but write Clara wherever it says Marta:\n\n{_STORY}",
    f"Correct the tense: rewrite this text in the present tense and change nothing else.\n\n{_STORY}",
    f"Rename the parameter `path` to `source` in this code and answer with the whole code only:\n\n{_CODE[1]}",
)
_TALK = (
    "What should I think about before I move to another city?",
    "Tell me a short story about a lighthouse keeper who is afraid of the dark.",
    "Why do people find it hard to keep to plans that they made themselves?",
    "Explain to a ten-year-old how a radio finds its station.",
)

"""Words that readers stumble over, in all texts that people see: the window, the terminal, errors, documentation.

Each stands for what somebody had to read twice; the field's word, or plain English, is named next to it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from engine.doors.cli.main import app

ROOT = Path(__file__).parents[1]
BETTER = {
    r"\banew\b": "again",
    r"\bis the one(?=[.,;:]|$)": "say what it is",
    r"\bby lot\b": "at random, in random order",
    r"\bheed(?:s|ed|ing)?\b": "uses, follows",
    r"(?<![/.])\bfetch(?:es|ed|ing)?\b(?! pictures)": "download",
    r"(?:,|·|\() as [\w.\-/]+ (?:or|and) ": "such as",
    r"\bgo(?:es)? on from there\b": "continues from there",
    r"\bof usual length\b": "of the usual length",
    r"\bso many\b": "a number",
    r"\bwaits for its turn\b": "queued",
    r"\blists what there is\b": "name it",
    r"(?<![Tt]here )\b(?:is|are) no (?:JSON|text|list|file|folder|valid|UTF|address|token|order|name)": "is not a",
}
FOR_USERS = ("using", "optimisations", "families", "together", "works-with")
ALLOWED = ("--fetch-pictures", "git lfs", "pictures of a request are", "Pictures are not fetched")
"""Texts with one of these may fetch: pictures from addresses, and other programs' commands."""


def texts() -> Iterator[tuple[str, str]]:
    """(where, text) of strings in the source, help of commands, documentation for users and what is bundled."""
    for path in sorted([*ROOT.glob("engine/**/*.py"), *ROOT.glob("app/**/*.py")]):
        yield from ((f"{path.relative_to(ROOT)}:{line}", text) for line, text in strings(path))
    yield from helps(typer.main.get_command(app), "kvasir")
    for path in (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in FOR_USERS)):
        for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line
    for path in (ROOT / "assets" / "models.json", *sorted((ROOT / "assets" / "papers").glob("*.json"))):
        yield from ((str(path.relative_to(ROOT)), text) for text in within(json.loads(path.read_text("utf-8"))))


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the strings of a file that hold several words, without docstrings."""
    documents: set[ast.expr] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Expr):  # a docstring, which comes before the string in it
            documents.add(node.value)
        elif isinstance(node, ast.Constant) and node not in documents and " " in str(node.value).strip():
            yield node.lineno, str(node.value)


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """(command, text) of what ``--help`` says of it, of its options and of its own commands."""
    yield name, command.help or ""
    yield from ((f"{name} {each.name}", getattr(each, "help", None) or "") for each in command.params)
    for own, each in getattr(command, "commands", {}).items():
        yield from helps(each, f"{name} {own}")


def within(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from within(each)


def stumbles(found: Iterator[tuple[str, str]]) -> list[str]:
    """What is to be read twice, with what to say instead."""
    return [
        f"{where}: {match[0].strip()!r} ({better}) in: {text.strip()[:120]}"
        for where, text in found
        for pattern, better in BETTER.items()
        if (match := re.search(pattern, text)) and not any(allowed in text for allowed in ALLOWED)
    ]


@pytest.mark.slow
def test_no_text_has_words_that_readers_stumble_over() -> None:
    found = stumbles(texts())
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "Name of a model, as qwen3 or gemma",
        "the cache is made anew",
        "Of the choices “not at all” is the one.",
        "what is being fetched heeds it",
        "rounds whose order is drawn by lot",
        "That is no token.",
    ],
)
def test_what_was_reported_is_found(text: str) -> None:
    assert stumbles(iter([("here", text)]))


@pytest.mark.parametrize(
    "text", ["There is no model at this path.", "It is no longer loaded.", "the same as before or after"]
)
def test_plain_english_is_not(text: str) -> None:
    assert not stumbles(iter([("here", text)]))

"""The help pages: the same questions and answers that the bundled model learned from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    question: str
    answer: str
    also: str
    """Other ways to ask the same, lower case, for the search."""


class Page(NamedTuple):
    title: str
    entries: tuple[Entry, ...]


def parse(text: str) -> Page:
    """One file: "# Title", then blocks of "Q: ..." lines and one "A: ..." line, with blank lines between.

    The first question of a block is its heading. A line that starts with neither continues the answer before it.
    Raises ValueError when there is no title.
    """
    title = ""
    entries: list[Entry] = []
    questions: list[str] = []
    answer = ""
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith("# ") and not title:
            title = stripped[2:]
        elif stripped.startswith("Q:"):
            questions.append(stripped[2:].strip())
        elif stripped.startswith("A:"):
            answer = stripped[2:].strip()
        elif stripped and answer:
            answer += "\n" + stripped
        elif not stripped:
            if questions and answer:
                entries.append(Entry(questions[0], answer, " ".join(questions).lower()))
            questions, answer = [], ""
    if not title:
        raise ValueError("no title")
    return Page(title, tuple(entries))


def load(folder: Path) -> list[Page]:
    """All pages of a folder in the order of their file names. A file that cannot be read is left out, and logged."""
    pages = []
    for path in sorted(folder.glob("*.txt")):
        try:
            page = parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            log.warning("help page %s left out: %s", path, error)
            continue
        if page.entries:
            pages.append(page)
    return pages


def search(pages: list[Page], words: str) -> list[Page]:
    """The entries that hold every word, in any order, grouped under their pages; all of them for no words."""
    wanted = words.lower().split()
    if not wanted:
        return pages
    found = []
    for page in pages:
        hits = tuple(
            entry
            for entry in page.entries
            if all(word in f"{page.title} {entry.also} {entry.answer}".lower() for word in wanted)
        )
        if hits:
            found.append(Page(page.title, hits))
    return found

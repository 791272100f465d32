"""Records of documents: the text that was read from a file, what is known of it, and what of it a message sends."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from typing import NamedTuple

import msgspec

MOST_CHARS = 2_000_000
"""Characters of one document; what is beyond is left out, and said to be."""
MOST = 10
"""Documents of one message."""


class DocumentFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a document besides its text."""

    kind: str = "Text"
    """The kind of file for people, such as "PDF"."""
    bytes: int = 0
    """Size of the file."""
    pages: int = 0
    """Pages (of a PDF) or chapters (of an EPUB); 0: it has lines alone."""
    lines: int = 0
    starts: list[int] = []
    """Offsets in the text at which its pages or chapters begin."""
    notes: list[str] = []
    """Sentences on what was left out of the text, or had to be guessed."""


class Document(NamedTuple):
    """A text that was read. ``digest``: of text and facts, under which the history has them once."""

    name: str
    text: str
    facts: DocumentFacts
    digest: str

    def place(self, offset: int) -> str:
        """Where a character stands, such as "page 3" or "line 120"."""
        if self.facts.starts:
            unit = "chapter" if self.facts.kind == "EPUB" else "page"
            return f"{unit} {max(1, bisect_right(self.facts.starts, offset))}"
        return f"line {self.text.count(chr(10), 0, offset) + 1}"


class DocumentPassage(msgspec.Struct, frozen=True, array_like=True):
    """The characters [start, end) of a document; ``number`` is what an answer calls it by."""

    number: int
    start: int
    end: int


class DocumentUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a document is sent with its message."""

    passages: list[DocumentPassage] | None = None
    """Passages that were searched out; None: the whole text."""
    of: int = 0
    """Number of passages that there are."""
    tokens: int = 0
    """Tokens of the whole text, 0 where they were not counted."""
    before: int = 0
    """Tokens of the prompt before the document, at most."""
    note: str = ""
    """Sentence on how the passages were chosen, where that was not by the question's words."""


class MessageDocument(NamedTuple):
    """A document as a part of a message. ``use`` None: what of it is sent is decided when the message is asked."""

    document: Document
    use: DocumentUse | None = None


class ReadText(msgspec.Struct, frozen=True):
    """What the process that reads a file answers."""

    text: str
    facts: DocumentFacts


class PassageSearch(msgspec.Struct, frozen=True):
    """What the process that searches passages is asked: the best for ``question``, ``chars`` in all at most."""

    text: str
    question: str
    chars: int


class FoundPassages(msgspec.Struct, frozen=True):
    """``passages`` in the order of the text, numbered from 1; ``of`` how many there are; ``matched`` False where no
    word of the question stands in any."""

    passages: list[DocumentPassage]
    of: int
    matched: bool


def document(name: str, text: str, facts: DocumentFacts) -> Document:
    """The document with its digest."""
    digest = hashlib.sha256(msgspec.json.encode(facts) + b"\n" + text.encode("utf-8", "surrogatepass")).hexdigest()
    return Document(name, text, facts, digest)


def of_text(name: str, text: str, kind: str = "Text") -> Document:
    """A text that is no file's, such as one that was pasted; cut where it is too long."""
    text, notes = cut(whole(text))
    facts = DocumentFacts(kind, len(text.encode()), 0, lines_of(text), [], notes)
    return document(name, text, facts)


def whole(text: str) -> str:
    """The text with replacement characters for halves of surrogate pairs, which no file or frame can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cut(text: str) -> tuple[str, list[str]]:
    """The text up to MOST_CHARS, with a sentence if that is not all of it."""
    if len(text) <= MOST_CHARS:
        return text, []
    return text[:MOST_CHARS], [f"Cut after {MOST_CHARS:,} of {len(text):,} characters."]


def lines_of(text: str) -> int:
    return text.count("\n") + bool(text and not text.endswith("\n"))


def size_of(facts: DocumentFacts) -> str:
    """How long it is, such as "12 pages" or "1 line"."""
    if facts.pages:
        return counted(facts.pages, "chapter" if facts.kind == "EPUB" else "page")
    return counted(facts.lines, "line")


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

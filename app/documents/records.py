"""Records of documents: the text that was read from a file, what is known of it, and what of it a message sends."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from typing import Literal, NamedTuple

import msgspec

from app.language import plural, tr

Unit = Literal["chapter", "page", "line"]
"""Parts of a document by which a place in it is told."""
Counted = Unit | Literal["passage", "token"]
MOST_CHARS = 2_000_000
"""Characters of one document; what is beyond is left out, and said to be."""
MOST = 10
"""Documents of one message."""


class DocumentFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a document besides its text."""

    kind: str = "Text"
    """The kind of file, such as "PDF"; :func:`kind_of` has it for people."""
    bytes: int = 0
    """Size of the file."""
    pages: int = 0
    """Pages (of a PDF) or chapters (of an EPUB); 0: it has lines alone."""
    lines: int = 0
    starts: list[int] = []
    """Offsets in the text at which its pages or chapters begin."""
    notes: list[str] = []
    """Sentences on what was left out of the text, or had to be guessed, in the language in which it was read."""

    @property
    def unit(self) -> Unit:
        """The unit of :attr:`pages` and :attr:`starts`."""
        return "chapter" if self.kind == "EPUB" else "page"


class Document(NamedTuple):
    """A text that was read. ``digest``: of text and facts, under which the history has them once."""

    name: str
    text: str
    facts: DocumentFacts
    digest: str

    @property
    def is_cut(self) -> bool:
        """True if what was beyond MOST_CHARS was left out."""
        return len(self.text) >= MOST_CHARS

    def position(self, offset: int) -> tuple[Unit, int]:
        """Where a character stands, such as ("page", 3)."""
        if self.facts.starts:
            return self.facts.unit, max(1, bisect_right(self.facts.starts, offset))
        return "line", self.text.count("\n", 0, offset) + 1

    def place(self, offset: int) -> str:
        """Where a character stands, for people: "page 3" or "line 120"."""
        unit, number = self.position(offset)
        match unit:
            case "chapter":
                return tr("chapter {number}", number=number)
            case "page":
                return tr("page {number}", number=number)
            case _:
                return tr("line {number}", number=number)


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
    model: str = ""
    """Name of the embedding model by which the passages were chosen too; "": by words alone."""


class MessageDocument(NamedTuple):
    """A document as a part of a message. ``use`` None: what of it is sent is decided when the message is asked."""

    document: Document
    use: DocumentUse | None = None
    folder: bool = False
    """True if it came with the folder of the chat, and not with the message alone."""

    @property
    def in_front(self) -> bool:
        """True if it stands before all messages: a whole one of a folder, which its chats have in common there."""
        return self.folder and (self.use is None or self.use.passages is None)


class ReadText(msgspec.Struct, frozen=True):
    """What the process that reads a file answers."""

    text: str
    facts: DocumentFacts


class PassageSearch(msgspec.Struct, frozen=True):
    """What the process that searches passages is asked: the best for ``question``, ``chars`` in all at most.

    ``vectors``: path of the file with the embeddings of all passages (`app.documents.vectors`), "" for none, and
    ``question_vector`` that of the question, by the same model.
    """

    text: str
    question: str
    chars: int
    vectors: str = ""
    question_vector: list[float] = []


class FoundPassages(msgspec.Struct, frozen=True):
    """``passages`` in the order of the text, numbered from 1; ``of`` how many there are; ``matched`` False where no
    word of the question stands in any. ``unused``: reason that the embeddings were not used, "" where they were, or
    there are none."""

    passages: list[DocumentPassage]
    of: int
    matched: bool
    unused: str = ""


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
    return text[:MOST_CHARS], [tr("Cut after {most:,} of {count:,} characters.", most=MOST_CHARS, count=len(text))]


def lines_of(text: str) -> int:
    return text.count("\n") + bool(text and not text.endswith("\n"))


def size_of(facts: DocumentFacts) -> str:
    """How long it is, such as "12 pages" or "1 line"."""
    return counted(facts.pages, facts.unit) if facts.pages else counted(facts.lines, "line")


def counted(number: int, thing: Counted) -> str:
    """Number of things, such as "1 page" or "12 pages"."""
    match thing:
        case "chapter":
            return plural("1 chapter", "{n:,} chapters", number)
        case "line":
            return plural("1 line", "{n:,} lines", number)
        case "page":
            return plural("1 page", "{n:,} pages", number)
        case "passage":
            return plural("1 passage", "{n:,} passages", number)
        case "token":
            return plural("1 token", "{n:,} tokens", number)


def kind_of(facts: DocumentFacts) -> str:
    """Kind of file for people."""
    names = {
        "Configuration": tr("Configuration", "a kind of file"),
        "Log": tr("Log", "a kind of file"),
        "Mail": tr("Mail", "a kind of file"),
        "Notebook": tr("Notebook", "a kind of file"),
        "Subtitles": tr("Subtitles", "a kind of file"),
    }
    return names.get(facts.kind, facts.kind)

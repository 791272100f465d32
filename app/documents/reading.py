"""Reading of one file: what it is its first bytes say, its name only where these do not."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec

from app.documents.decoding import BinaryError, decoded
from app.documents.records import DocumentFacts, ReadText, cut, lines_of
from app.language import tr

MOST_BYTES = 100 << 20
"""Of a file."""
KINDS = {
    ".txt": "Text",
    ".log": "Log",
    ".md": "Markdown",
    ".markdown": "Markdown",
    ".rst": "reStructuredText",
    ".tex": "LaTeX",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".json": "JSON",
    ".jsonl": "JSON lines",
    ".yaml": "YAML",
    ".yml": "YAML",
    ".toml": "TOML",
    ".ini": "Configuration",
    ".cfg": "Configuration",
    ".conf": "Configuration",
    ".xml": "XML",
    ".svg": "SVG",
    ".html": "HTML",
    ".htm": "HTML",
    ".xhtml": "HTML",
    ".css": "CSS",
    ".py": "Python",
    ".ipynb": "Notebook",
    ".js": "JavaScript",
    ".ts": "TypeScript",
    ".tsx": "TypeScript",
    ".jsx": "JavaScript",
    ".c": "C",
    ".h": "C",
    ".cpp": "C++",
    ".cc": "C++",
    ".hpp": "C++",
    ".cs": "C#",
    ".java": "Java",
    ".kt": "Kotlin",
    ".swift": "Swift",
    ".go": "Go",
    ".rs": "Rust",
    ".rb": "Ruby",
    ".php": "PHP",
    ".pl": "Perl",
    ".lua": "Lua",
    ".r": "R",
    ".jl": "Julia",
    ".sql": "SQL",
    ".sh": "Shell",
    ".bat": "Batch",
    ".ps1": "PowerShell",
    ".diff": "Patch",
    ".patch": "Patch",
    ".srt": "Subtitles",
    ".eml": "Mail",
    ".pdf": "PDF",
    ".docx": "Word",
    ".epub": "EPUB",
}
"""What a file with this ending is called; another that holds text is a "Text"."""
_FORMATS = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", tr("{name} is an old Office file. Save it as DOCX or PDF first.")),
    (b"{\\rtf", tr("{name} is an RTF file. Save it as DOCX or PDF first.")),
    (b"\x89PNG", tr("{name} is a picture. A model that sees pictures reads it under a name that ends in .png.")),
    (b"\xff\xd8\xff", tr("{name} is a picture. A model that sees pictures reads it under a name that ends in .jpg.")),
    (b"GGUF", tr("{name} is a model. Open it with the model's menu above.")),
)
EMPTY = tr("{name} is empty.")
FOLDER = tr("{name} is a folder. Add the files inside it.")
NO_FILE = tr("{name} is not a file.")
BINARY = tr("{name} is not a text, and no kind of document that can be read here.")


def read(path: Path) -> ReadText:
    """The text of a file. Raises ValueError with a sentence for people, and OSError."""
    data, name = _bytes(path), path.name
    if not data.strip():
        raise ValueError(EMPTY.format(name=name))
    if b"%PDF-" in data[:1024]:
        from app.documents import pdf

        return _under_its_name(pdf.read(data, name), path)
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        from app.documents import zipped

        return _under_its_name(zipped.read(data, name), path)
    for begin, sentence in _FORMATS:
        if data.startswith(begin):
            raise ValueError(sentence.format(name=name))
    kind = KINDS.get(path.suffix.lower(), "Text")
    try:
        text, notes = decoded(data)
    except BinaryError:
        raise ValueError(BINARY.format(name=name)) from None
    if kind == "HTML":
        from app.documents.markup import markdown

        text, more = markdown(text)
        notes += more
    elif kind in ("PDF", "Word", "EPUB"):
        notes.append(tr("It is plain text, though its name ends in {end}.", end=path.suffix))
        kind = "Text"
    if not text.strip():
        raise ValueError(EMPTY.format(name=name))
    text, more = cut(text)
    return ReadText(text, DocumentFacts(kind, len(data), 0, lines_of(text), [], notes + more))


def _under_its_name(found: ReadText, path: Path) -> ReadText:
    """What was read, with a note if its name says that it is something else."""
    facts = found.facts
    if KINDS.get(path.suffix.lower(), "Text") == facts.kind:
        return found
    if facts.kind == "EPUB":
        note = tr("It is an EPUB file, though its name ends in {end}.", end=path.suffix)
    else:
        note = tr("It is a {kind} file, though its name ends in {end}.", kind=facts.kind, end=path.suffix)
    return msgspec.structs.replace(found, facts=msgspec.structs.replace(facts, notes=[note, *facts.notes]))


def _bytes(path: Path) -> bytes:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise ValueError(FOLDER.format(name=path.name))
    if not stat.S_ISREG(mode):  # a pipe would wait for ever, and a device need not end
        raise ValueError(NO_FILE.format(name=path.name))
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        large = {"name": path.name, "size": -(-max(size, len(data)) >> 20), "most": MOST_BYTES >> 20}
        raise ValueError(tr("{name} has {size:,} MB, and a document can have {most:,} MB.", **large))
    return data


def refusal(path: Path, error: OSError) -> str:
    """A sentence on a file that the system does not let one read."""
    if error.errno == errno.ENOENT:
        return tr("{name} is not there any more.", name=path.name)
    if error.errno in (errno.EACCES, errno.EPERM):
        return tr("{name} may not be read: its permissions do not allow it.", name=path.name)
    why = error.strerror or type(error).__name__
    return tr("{name} cannot be read ({kind}).", name=path.name, kind=why)

"""A code block as a file: the name that it is offered under, and its text on the disk. No widgets."""

from __future__ import annotations

import re
from pathlib import Path

from app.chat.transcript.text.highlight import lexer_for

_NAMED = re.compile(r"[\w+-][\w.+-]*\.\w+")
_SUFFIXES = {"mermaid": ".mmd", "csv": ".csv", "tsv": ".tsv", "svg": ".svg", "r": ".R", "console": ".txt"}
"""Languages that pygments does not know, or has another suffix for first."""
_WHOLE = {
    "make": "Makefile",  # not shown
    "makefile": "Makefile",  # not shown
    "dockerfile": "Dockerfile",  # not shown
    "docker": "Dockerfile",  # not shown
}
"""Languages of files that always have this name."""


def suggested_name(info: str) -> str:
    """A name for the file of a code block from the words behind its fence: one in them, or the language's suffix."""
    language, _, rest = info.strip().partition(" ")
    language, _, path = language.partition(":")
    found = _NAMED.search((path or rest).replace("\\", "/").rpartition("/")[2])
    if found:
        return found[0]
    language = language.lower()
    return _WHOLE.get(language) or f"code{_SUFFIXES.get(language) or _suffix(language)}"


def write(path: Path, code: str) -> None:
    """Write the code, with an end to its last line. Raises OSError."""
    path.write_bytes(f"{code}\n".encode("utf-8", "surrogatepass"))


def _suffix(language: str) -> str:
    lexer = lexer_for(language)
    patterns = lexer.filenames if lexer is not None else []
    return next((pattern[1:] for pattern in patterns if re.fullmatch(r"\*\.\w+", pattern)), ".txt")

"""Lines of the log file: the last ones, and those that come. No widgets."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from app.log import without_secrets
from engine.base.lines import split_lines

LAST_BYTES = 256 << 10
"""Bytes at the end of the file that are read at first."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
ENGINE = "engine"
"""Logger to which the window gives every line that the engine writes, which has a level of its own."""
_LINE = re.compile(
    rf"(?P<time>\d{{4}}-\d\d-\d\d [\d:,]+) (?P<level>{'|'.join(LEVELS)}) (?P<source>[\w.]+): (?P<text>.*)"
)
_OWN = re.compile(rf"(?P<level>{'|'.join(LEVELS)}) (?P<source>[\w.]+): (?P<text>.*)")


class LogLine(NamedTuple):
    """One line as it is in the file, without keys. A line that goes on with a record, such as one of a traceback, has
    that record's level and source."""

    text: str
    level: str = "INFO"
    engine: bool = False
    """True if the engine wrote it."""

    @property
    def severity(self) -> int:
        return LEVELS.index(self.level)


class LogTail:
    """Reads ``path`` on from where it was read last. A file that was begun again is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = -1
        """Bytes that were read; -1 before the first time."""
        self._file = 0
        """The file's number, by which one that takes the place of a full one is known."""
        self._rest = b""
        """A line without its end."""
        self._last = LogLine("")

    def read(self) -> list[LogLine]:
        """The lines that came since the last time. Raises OSError, FileNotFoundError if there is no log yet."""
        with self.path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if self._at >= 0 and (facts.st_ino != self._file or facts.st_size < self._at):
                self._at, self._rest = 0, b""
            self._file = facts.st_ino
            cut = self._at < 0 and facts.st_size > LAST_BYTES
            if self._at < 0:
                self._at = max(0, facts.st_size - LAST_BYTES)
            file.seek(self._at)
            added = file.read()
        self._at += len(added)
        whole, end, self._rest = (self._rest + added).rpartition(b"\n")
        lines = split_lines(whole.decode(errors="replace")) if end else []
        return [self._parse(line) for line in lines[cut:]]

    def _parse(self, line: str) -> LogLine:
        text = without_secrets(line)
        if (found := _LINE.fullmatch(text)) is None:
            return self._last._replace(text=text)
        level, engine = found["level"], found["source"] == ENGINE
        if engine and (own := _OWN.match(found["text"])) is not None:
            level = own["level"]
        elif engine and not found["text"].strip():
            level = self._last.level
        self._last = LogLine(text, level, engine)
        return self._last

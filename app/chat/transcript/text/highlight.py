"""Code in the theme's colours: pygments finds the tokens, a QSyntaxHighlighter shows them line by line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound
from PySide6.QtCore import QTimer
from PySide6.QtGui import QSyntaxHighlighter, QTextCharFormat, QTextDocument

from app.theme.theme import Theme

LONGEST = 100_000
"""Characters beyond which code stays plain."""
SLICE_S = 0.004
SLICE_GAP_MS = 8
_PATIENCE = 12
"""While code grows it is lexed again only after this many times what the last time took."""
_MEANING: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "mute"),
    (String, "good"),
    (Number, "warn"),
    (Keyword, "violet"),
    (Operator.Word, "violet"),
    (Name.Function, "accent"),
    (Name.Class, "accent"),
    (Name.Decorator, "teal"),
    (Name.Builtin, "teal"),
    (Name.Tag, "accent"),
    (Name.Attribute, "teal"),
)


class HighlightRun(NamedTuple):
    """``start`` and ``length`` in UTF-16 units within one line, ``token`` a colour name of the theme."""

    start: int
    length: int
    token: str


@lru_cache(maxsize=32)
def lexer_for(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        return None


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def lex(code: str, language: str) -> Iterator[list[HighlightRun]]:
    """The coloured runs of each line, one line after the other; nothing for a language that is not known."""
    lexer = lexer_for(language)
    if lexer is None:
        return
    line: list[HighlightRun] = []
    column = 0
    for kind, value in lexer.get_tokens(code):
        token = next((name for parent, name in _MEANING if kind in parent), "")
        for number, piece in enumerate(value.split("\n")):
            if number:
                yield line
                line, column = [], 0
            length = utf16_length(piece)
            if token and length:
                line.append(HighlightRun(column, length, token))
            column += length
    yield line


class CodeHighlighter(QSyntaxHighlighter):
    """Colours one document in slices of a few milliseconds, and only lines whose colours changed."""

    def __init__(self, document: QTextDocument, theme: Theme) -> None:
        super().__init__(document)
        self._theme = theme
        self._lines: list[list[HighlightRun]] = []
        self._work: Iterator[list[HighlightRun]] | None = None
        self._at = 0
        self._wanted = ("", "")
        self._begun = ("", "")
        self._spent = 0.0
        self._due = 0.0
        self._formats: dict[str, QTextCharFormat] = {}
        self._timer = QTimer(self, singleShot=True, interval=SLICE_GAP_MS)
        self._timer.setObjectName("highlight-slice")
        self._timer.timeout.connect(self._slice)

    def refresh(self, code: str, language: str, growing: bool) -> None:
        """Colour this code, at once if it is short; while it grows, seldom enough to stay a small share of the time."""
        self._wanted = (code, language)
        idle = self._work is None and self._wanted != self._begun
        if idle and len(code) <= LONGEST and (not growing or time.monotonic() >= self._due):
            self._begin()
        elif not growing and self._work is not None:
            self._due = 0.0  # the whole code follows as soon as this pass is through

    def recolour(self) -> None:
        """After a change of theme."""
        self._formats.clear()
        self.rehighlight()

    def highlightBlock(self, text: str) -> None:
        number = self.currentBlock().blockNumber()
        if number < len(self._lines):
            for run in self._lines[number]:
                self.setFormat(run.start, run.length, self._format(run.token))

    def _begin(self) -> None:
        self._begun = self._wanted
        self._work, self._at, self._spent = lex(*self._begun), 0, 0.0
        self._slice()

    def _slice(self) -> None:
        began = time.monotonic()
        for runs in self._work or ():
            self._take(runs)
            if time.monotonic() - began > SLICE_S:
                self._spent += time.monotonic() - began
                self._timer.start()
                return
        now = time.monotonic()
        self._work = None
        finished_late = self._due == 0.0 and self._wanted != self._begun
        self._due = now + _PATIENCE * (self._spent + now - began)
        if finished_late and self._begun[0]:
            self._begin()

    def _take(self, runs: list[HighlightRun]) -> None:
        number, self._at = self._at, self._at + 1
        if number >= len(self._lines):
            self._lines.append([])
        if self._lines[number] != runs:
            self._lines[number] = runs
            self.rehighlightBlock(self.document().findBlockByNumber(number))

    def _format(self, token: str) -> QTextCharFormat:
        if token not in self._formats:
            made = QTextCharFormat()
            made.setForeground(self._theme.color(token))
            self._formats[token] = made
        return self._formats[token]

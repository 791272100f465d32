"""Thinking that came before an answer: one line to unfold, or its last lines while it grows."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from app.chat.transcript.folded import CAPTION_LINE_PX, Folded
from app.history.records import thought_for
from app.language import tr
from app.theme.theme import Theme

PEEK_LINES = 5
PEEK_CHARS = 2_000
"""More than the last lines ever hold; what is before them is not laid out while it cannot be seen."""


class ThinkingBlock(Folded):
    """Shows its end while the thinking grows and nothing of it afterwards, unless the person wants all of it."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        help_text = tr("Show or hide what the model thought before it answered")
        super().__init__("thinking", help_text, tr("What the model thought"), theme, parent)
        self._text = ""
        self._seconds = 0.0
        self._growing = False
        self._name()

    @property
    def text(self) -> str:
        return self._text

    def show_thinking(self, text: str, seconds: float, growing: bool) -> None:
        """The thinking so far, how long it took, and whether more is to come before the answer."""
        self._text, self._seconds, self._growing = text, seconds, growing
        self.refresh()

    def words(self) -> tuple[str, str]:
        if self._growing:
            return tr("Thinking… {seconds} s", seconds=round(self._seconds)), tr("Thinking")
        title = thought_for(self._seconds)
        return title, title

    def wanted(self) -> str:
        return self._text if self._open else _end(self._text) if self._growing else ""

    def height_of(self, full: int) -> int:
        return full if self._open else min(full, PEEK_LINES * self._theme.px(CAPTION_LINE_PX))


def _end(text: str) -> str:
    """The end of a long text, from the beginning of a line where there is one."""
    if len(text) <= PEEK_CHARS:
        return text
    start = text.find("\n", len(text) - PEEK_CHARS) + 1
    return text[start:] if 0 < start < len(text) - PEEK_CHARS // 2 else text[-PEEK_CHARS:]

"""What is selected in a text, kept while the text is rendered again because it grew."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtGui import QTextCursor, QTextDocument
from PySide6.QtWidgets import QTextEdit

_NEAR = 400
"""Letters by which what is selected may have moved: marks before it that were closed are not shown any more."""


class Selection(NamedTuple):
    """``anchor`` and ``position`` as those of QTextCursor; ``words`` are selected, as UTF-16."""

    anchor: int
    position: int
    words: bytes

    @classmethod
    def of(cls, view: QTextEdit) -> Selection | None:
        """What is selected now, None if nothing is."""
        cursor = view.textCursor()
        if not cursor.hasSelection():
            return None
        words = _units(view.document())[2 * cursor.selectionStart() : 2 * cursor.selectionEnd()]
        return cls(cursor.anchor(), cursor.position(), words)

    def restore(self, view: QTextEdit) -> None:
        """Select the same words where they stand now, or the same place where they are gone."""
        units, start = _units(view.document()), min(self.anchor, self.position)
        moved = 0
        if units[2 * start : 2 * start + len(self.words)] != self.words:
            found = units.find(self.words, max(0, 2 * (start - _NEAR)))
            moved = found // 2 - start if found >= 0 and found % 2 == 0 else 0
        last = view.document().characterCount() - 1
        cursor = QTextCursor(view.document())
        cursor.setPosition(min(last, self.anchor + moved))
        cursor.setPosition(min(last, self.position + moved), QTextCursor.MoveMode.KeepAnchor)
        view.setTextCursor(cursor)


def _units(document: QTextDocument) -> bytes:
    return document.toRawText().encode("utf-16-le", "surrogatepass")

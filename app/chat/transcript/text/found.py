"""The words that a search found, marked in the text of a message."""

from __future__ import annotations

from PySide6.QtGui import QColor, QTextCursor
from PySide6.QtWidgets import QTextEdit

from app.chat.transcript.text.tint import TintRun, in_utf16
from app.history.search import places
from app.theme.theme import Theme

SHARE = 0.4
"""Share of the accent colour in the background of a found word."""


def mark(view: QTextEdit, words: str, theme: Theme) -> int | None:
    """Mark the words in ``view``, none for ""; returns how far below its top the first one lies, pixels, if any."""
    text = view.toPlainText() if words else ""
    runs = in_utf16([TintRun(start, end, "") for start, end in places(text, words)], text)
    selections = []
    for run in runs:
        selection = QTextEdit.ExtraSelection()
        selection.cursor = QTextCursor(view.document())
        selection.cursor.setPosition(run.start)
        selection.cursor.setPosition(run.end, QTextCursor.MoveMode.KeepAnchor)
        selection.format.setBackground(QColor(theme.tint("accent", SHARE)))
        selections.append(selection)
    view.setExtraSelections(selections)
    if not selections:
        return None
    first = QTextCursor(view.document())
    first.setPosition(runs[0].start)
    return view.cursorRect(first).top()

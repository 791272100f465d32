"""A field of plain text that gives back every letter that was put into it, and text that is copied without changes.

Qt takes U+2029, U+FDD0 and U+FDD1 for ends of lines, and gives a no-break space back as a space.
"""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QTextCursor, QTextDocumentFragment
from PySide6.QtWidgets import QPlainTextEdit, QStyle, QWidget

from app.theme.direction import direction

_ENDS = "\u2029\ufdd0\ufdd1"
_KEPT = "\U0005fffe\U0005ffff\U0006fffe"
"""Noncharacters, which Unicode leaves to the inside of programs; Qt takes them for any other letter."""
_INTO = str.maketrans(_ENDS, _KEPT)
_LOOKED_AT = 100
"""Lines, and letters of each, among which the first letter with a direction is looked for."""
_BACK = str.maketrans(_KEPT + "\u2029", _ENDS + "\n")


class ExactTextEdit(QPlainTextEdit):
    r"""Ends of lines are \n, also where \r\n or \r was put in. Text is aligned by the direction of its first letter."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.textChanged.connect(self._align)

    def toPlainText(self) -> str:
        return self.document().toRawText().translate(_BACK)

    def setPlainText(self, text: str) -> None:
        super().setPlainText(text.translate(_INTO))

    def insertPlainText(self, text: str) -> None:
        super().insertPlainText(text.translate(_INTO))

    def insertFromMimeData(self, source: QMimeData) -> None:
        if text := text_of(source):
            self.insertPlainText(text)
            self.ensureCursorVisible()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.InsertLineSeparator):  # Qt would insert U+2028
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        else:
            super().keyPressEvent(event)

    def _align(self) -> None:
        """Qt has one alignment for all lines, and by itself begins each at the left."""
        block, own = self.document().begin(), None
        while own is None and block.isValid() and block.blockNumber() < _LOOKED_AT:
            own, block = direction(block.text()[:_LOOKED_AT]), block.next()
        option = self.document().defaultTextOption()
        align = QStyle.visualAlignment(own or self.layoutDirection(), Qt.AlignmentFlag.AlignLeft)
        if option.alignment() != align:
            option.setAlignment(align)
            self.document().setDefaultTextOption(option)

    def createMimeDataFromSelection(self) -> QMimeData:
        copied = QMimeData()
        copied.setText(selected(self.textCursor()))
        return copied


def text_of(source: QMimeData) -> str:
    """Text to paste, also if it was copied as nothing but HTML."""
    return source.text() or (QTextDocumentFragment.fromHtml(source.html()).toPlainText() if source.hasHtml() else "")


def selected(cursor: QTextCursor) -> str:
    """The selected text, each letter as it stands there."""
    return cursor.selectedText().translate(_BACK)

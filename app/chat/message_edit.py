"""The field of the composer: grows to eight lines; Shift-Enter breaks the line, and long texts become documents."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QWidget

from app.chat import pictures
from app.chat.transcript.text.wrapping import wrap_mode
from app.dropped import accept_copy, files_in
from app.language import tr
from app.texts.exact import ExactTextEdit, text_of
from app.theme.widgets import named

LINES = 8
QWIDGETSIZE_MAX = (1 << 24) - 1
LONG_CHARS = 20_000
"""A text of more that is pasted becomes a document, of which a click makes text again."""
MOST_CHARS = 2_000_000
"""Most characters of one message: far beyond what models read, and what can be laid out while somebody waits."""


class MessageEdit(ExactTextEdit):
    """Plain text as high as what it holds, up to LINES lines."""

    submitted = Signal()
    continued = Signal()
    """Ctrl+Enter was pressed."""
    recalled = Signal()
    """Up was pressed in the empty field."""
    end_asked = Signal()
    """End was pressed in the empty field."""
    refused = Signal(str)
    """Reason, as a sentence: the text to insert is too long."""
    grown = Signal()
    pictured = Signal(list)
    """Pictures were pasted or dropped: images."""
    filed = Signal(list)
    """Files were pasted or dropped: their paths."""
    long_pasted = Signal(str)
    """A text was pasted or dropped that is longer than a message should be."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        named(self, frameShape=QFrame.Shape.NoFrame, tabChangesFocus=True)
        self.setWordWrapMode(wrap_mode(""))
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(4)
        named(self, "composer-text", title=tr("Message"))
        self._most = QWIDGETSIZE_MAX
        self.textChanged.connect(self._fit)

    def limit(self, height: int) -> None:
        """Be no higher than so many pixels, and scroll what does not fit; a line is always shown."""
        self._most = max(height, self.line_height)
        self._fit()

    @property
    def line_height(self) -> int:
        """Pixels with a single line in it."""
        return self.fontMetrics().lineSpacing() + 2 * math.ceil(self.document().documentMargin())

    def setPlainText(self, text: str) -> None:
        self.setWordWrapMode(wrap_mode(text))
        super().setPlainText(text)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return bool(files_in(source) or pictures.in_mime(source)) or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Pasted or dropped text; much of it is made a document before it is laid out, which would take seconds."""
        if files := files_in(source):
            self.filed.emit(files)
            return
        if found := pictures.in_mime(source):
            self.pictured.emit(found)
            return
        text = text_of(source)
        if len(text) > LONG_CHARS:
            self.long_pasted.emit(text)
            return
        kept = self.document().characterCount() - 1 - len(self.textCursor().selectedText())
        if kept + len(text) > MOST_CHARS:
            self.refuse(len(text))
            return
        if source.hasText():
            self.setWordWrapMode(wrap_mode(text))
        super().insertFromMimeData(source)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        super().dragEnterEvent(event)
        self._keep_file(event)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        super().dragMoveEvent(event)
        self._keep_file(event)

    def dropEvent(self, event: QDropEvent) -> None:
        super().dropEvent(event)
        self._keep_file(event)

    def _keep_file(self, event: QDropEvent) -> None:
        """A file or a picture is copied; text may be moved from place to place."""
        if event.isAccepted() and (files_in(event.mimeData()) or pictures.in_mime(event.mimeData())):
            accept_copy(event)

    def refuse(self, chars: int) -> None:
        self.refused.emit(
            tr(
                "What you insert has {chars:,} characters, and a message can have {most:,}. Insert a part of it.",
                chars=chars,
                most=MOST_CHARS,
            )
        )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and not event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier):
            ctrl = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
            (self.continued if ctrl else self.submitted).emit()
        elif event.key() == Qt.Key.Key_Up and not event.modifiers() and self.document().isEmpty():
            self.recalled.emit()
        elif event.key() == Qt.Key.Key_End and self.document().isEmpty():
            self.end_asked.emit()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._fit()

    def sizeHint(self) -> QSize:
        return QSize(200, self._wanted())

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self._wanted())

    def _wanted(self) -> int:
        shown, margins = min(max(1, self._lines()), LINES), 2 * self.document().documentMargin()
        height = self.document().begin().layout().lineAt(0).height()
        # A pixel more, without which the last line counts as one to scroll to.
        return math.ceil(shown * max(height, self.fontMetrics().lineSpacing()) + margins) + 1

    def _lines(self) -> int:
        """Number of lines the text takes, counted up to one more than LINES.

        The document itself counts a paragraph that is not laid out yet as one line.
        """
        layout, block, lines = self.document().documentLayout(), self.document().begin(), 0
        while block.isValid() and lines <= LINES:
            layout.blockBoundingRect(block)  # lays it out
            lines += block.layout().lineCount()
            block = block.next()
        return lines

    def _fit(self) -> None:
        wanted = self._wanted()
        height = min(wanted, self._most)
        full = height < wanted or self._lines() > LINES  # set once: another policy is another width, which fits again
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if full else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(policy)
        if self.height() != height:
            self.setFixedHeight(height)
            self.updateGeometry()
            self.grown.emit()

"""A code block of a message: language, copy button, colours, a scroll bar only where a line is too long."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QFont, QGuiApplication, QTextBlockFormat, QTextCursor, QWheelEvent
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QTextEdit, QWidget

from app.chat.transcript.text.blocks import TextView
from app.chat.transcript.text.highlight import CodeHighlighter
from app.chat.transcript.text.markdown import MarkdownBlock
from app.chat.transcript.text.tint import TintRun, tinted_runs
from app.history.records import TextSpan
from app.theme.theme import Theme
from app.theme.widgets import named

CODE_LINE_PX = 19
HEADER_PX = 30
INSET_PX = 14


class CodeView(TextView):
    """The text inside a code block: no wrapping, a horizontal scroll bar where a line is too long."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self.setLineWrapMode(QTextEdit.LineWrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)

    def text_font(self) -> QFont:
        return self._theme.mono_font()

    def wheelEvent(self, event: QWheelEvent) -> None:
        sideways = abs(event.angleDelta().x()) > abs(event.angleDelta().y())
        if sideways and self.horizontalScrollBar().maximum():
            super().wheelEvent(event)
        else:
            event.ignore()

    def fit(self, width: int) -> int:
        size = self.document().size()
        bar = self.horizontalScrollBar().sizeHint().height() if size.width() > width else 0
        return math.ceil(size.height()) + bar


class CodeBlock(QFrame):
    """A code block with its language and a copy button."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("card", "code")
        self._theme = theme
        self._block = MarkdownBlock("code", 0, 0, "", -1)
        self._text = ""
        self._language = named(QLabel(self, textFormat=Qt.TextFormat.PlainText), role="caption")
        self._copy = named(
            QPushButton("Copy", self), "copy-code", title="Copy this code", clicked=self._on_copy, kind="link"
        )
        self._said = QTimer(self, singleShot=True, interval=1500)
        self._said.timeout.connect(lambda: self._copy.setText("Copy"))
        self._view = named(CodeView(theme, self), title="Code")
        self._highlighter = CodeHighlighter(self._view.document(), theme)
        self._set_font()

    @property
    def code(self) -> str:
        return self._text

    @property
    def tint_runs(self) -> list[TintRun]:
        return self._view.tint_runs

    def show_block(self, block: MarkdownBlock, growing: bool) -> None:
        self._block = block
        self._language.setText(block.info)
        self._set_text(block.body)
        self._highlighter.refresh(block.body, block.language, growing)

    def fit(self, width: int) -> int:
        inner = width - 2 * INSET_PX
        height = self._view.fit(inner)
        self._view.setGeometry(INSET_PX, HEADER_PX, inner, height)
        button = self._copy.sizeHint().width()
        self._copy.setGeometry(width - INSET_PX - button, 6, button, 20)
        self._language.setGeometry(INSET_PX, 6, max(0, inner - button - 8), 20)
        return HEADER_PX + height + 10

    def set_tint(self, spans: Sequence[TextSpan] | None) -> None:
        if not spans or self._block.body_start < 0:
            self._view.mark([])
            return
        where = [-1 if char == "\n" else index for index, char in enumerate(self._text)]
        self._view.mark(tinted_runs(where, self._block.body_start, spans))

    def restyle(self) -> None:
        self._set_font()
        self._highlighter.recolour()

    def _set_font(self) -> None:
        self._view.document().setDefaultFont(self._view.text_font())

    def _set_text(self, text: str) -> None:
        """While code streams in only its new end is inserted, whatever the length of what stands."""
        if text == self._text:
            return
        cursor = QTextCursor(self._view.document())
        if self._text and text.startswith(self._text):
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text[len(self._text) :])
        else:
            self._view.setPlainText(text)
            cursor.select(QTextCursor.SelectionType.Document)
            look = QTextBlockFormat()
            minimum = QTextBlockFormat.LineHeightTypes.MinimumHeight.value
            look.setLineHeight(float(self._theme.px(CODE_LINE_PX)), minimum)
            cursor.mergeBlockFormat(look)
        self._text = text

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self._text)
        self._copy.setText("Copied")
        self._said.start()

"""A code block of a message: language, wrap, save and copy, colours, a scroll bar only where a line is too long."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFont, QGuiApplication, QTextBlockFormat, QTextCursor
from PySide6.QtWidgets import QFileDialog, QFrame, QLabel, QPushButton, QTextEdit, QWidget

from app.chat.transcript.text.blocks import TextView
from app.chat.transcript.text.code_files import suggested_name, write
from app.chat.transcript.text.highlight import CodeHighlighter
from app.chat.transcript.text.selection import Selection
from app.chat.transcript.text.tint import TintRun, tinted_runs
from app.chat.transcript.text.wrapping import wrap_mode
from app.history.records import TextSpan
from app.language import tr
from app.texts.markdown import MarkdownBlock
from app.theme.theme import Theme
from app.theme.widgets import button_text, named, say, tip

CODE_LINE_PX = 19
HEADER_PX, LABEL_PX = 30, 20
INSET_PX = 14
GAP_PX = 8


class CodeView(TextView):
    """The text inside a code block: its lines as they are, with a scroll bar where one is too long, or wrapped."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._width = 0
        self.setLineWrapMode(QTextEdit.LineWrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)

    @property
    def wrapped(self) -> bool:
        return self.lineWrapMode() == QTextEdit.LineWrapMode.WidgetWidth

    def wrap(self, on: bool) -> None:
        """Break long lines at the width, or at none."""
        modes = QTextEdit.LineWrapMode
        self._width = 0
        self.setWordWrapMode(wrap_mode(self.toPlainText() if on else ""))
        self.setLineWrapMode(modes.WidgetWidth if on else modes.NoWrap)
        self.document().setTextWidth(-1)

    def text_font(self) -> QFont:
        return self._theme.mono_font()

    def is_too_long(self, width: int) -> bool:
        """Whether a line has no room in ``width`` pixels, or is broken to have it."""
        return self.wrapped or self.document().size().width() > width

    def fit(self, width: int) -> int:
        if self.wrapped and width != self._width:  # setting a width lays out all of it again
            self._width = width
            self.document().setTextWidth(width)
        size = self.document().size()
        bar = self.horizontalScrollBar().sizeHint().height() if not self.wrapped and size.width() > width else 0
        return math.ceil(size.height()) + bar


class CodeBlock(QFrame):
    """A code block with its language and buttons to wrap, save and copy it."""

    refolded = Signal()
    """It has another height, because the person wrapped its lines or a file could not be written."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("card", "code")
        self._theme = theme
        self._block = MarkdownBlock("code", 0, 0, "", -1)
        self._text = ""
        self._language = named(QLabel(self, textFormat=Qt.TextFormat.PlainText), role="caption")
        self._wrap = self._button(tr("Wrap"), "wrap-code", tr("Wrap long lines"), self._on_wrap)
        self._wrap.setCheckable(True)
        self._save = self._button(tr("Save…"), "save-code", tr("Save this code as a file"), self._on_save)
        self._copy = self._button(tr("Copy"), "copy-code", tr("Copy this code"), self._on_copy)
        self._said = QTimer(self, singleShot=True, interval=1500)
        self._said.timeout.connect(self._say_nothing)
        self._failure = named(
            QLabel(self, textFormat=Qt.TextFormat.PlainText, wordWrap=True), "code-failure", role="bad"
        )
        self._failure.hide()
        self._view = named(CodeView(theme, self), title=tr("Code"))
        self._highlighter = CodeHighlighter(self._view.document(), theme)
        self._set_font()

    @property
    def code(self) -> str:
        return self._text

    @property
    def view(self) -> TextView:
        """The text itself."""
        return self._view

    @property
    def wrapped(self) -> bool:
        return self._view.wrapped

    @property
    def tint_runs(self) -> list[TintRun]:
        return self._view.tint_runs

    def wrap(self, on: bool) -> None:
        """Wrap long lines, or end that; the next :meth:`fit` has the new height."""
        self._view.wrap(on)
        self._wrap.setChecked(on)
        self._wrap.setText(tr("Unwrap") if on else tr("Wrap"))

    def show_block(self, block: MarkdownBlock, growing: bool) -> None:
        self._block = block
        self._language.setText(block.info)
        self._set_text(block.body)
        self._highlighter.refresh(block.body, block.language, growing)

    def fit(self, width: int) -> int:
        inner, right, top = width - 2 * INSET_PX, width - INSET_PX, self._theme.px(HEADER_PX)
        high = self._theme.px(LABEL_PX)
        self._wrap.setVisible(self._view.is_too_long(inner))
        for button in (self._copy, self._save, self._wrap):
            if not button.isHidden():
                wide = button.sizeHint().width()
                button.setGeometry(right - wide, 6, wide, high)
                right -= wide + GAP_PX
        self._language.setGeometry(INSET_PX, 6, max(0, right - INSET_PX), high)
        if not self._failure.isHidden():
            high = self._failure.heightForWidth(inner)
            self._failure.setGeometry(INSET_PX, top, inner, high)
            top += high + GAP_PX
        height = self._view.fit(inner)
        self._view.setGeometry(INSET_PX, top, inner, height)
        return top + height + 10

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
            selection = Selection.of(self._view)
            self._view.setPlainText(text)
            cursor.select(QTextCursor.SelectionType.Document)
            look = QTextBlockFormat()
            minimum = QTextBlockFormat.LineHeightTypes.MinimumHeight.value
            look.setLineHeight(float(self._theme.px(CODE_LINE_PX)), minimum)
            cursor.mergeBlockFormat(look)
            if selection is not None:
                selection.restore(self._view)
        self._text = text

    def _button(self, text: str, name: str, title: str, act: Callable[[], object]) -> QPushButton:
        return named(QPushButton(button_text(text), self), name, title=title, clicked=lambda: act(), kind="link")

    def _on_wrap(self) -> None:
        self.wrap(not self.wrapped)
        self.refolded.emit()

    def _on_save(self) -> None:
        start = str(Path.home() / suggested_name(self._block.info))
        path, _ = QFileDialog.getSaveFileName(self, tr("Save this code as a file"), start)
        if not path:
            return
        failure = ""
        try:
            write(Path(path), self._text)
        except OSError as error:
            why = error.strerror or error
            failure = tr("The file could not be written ({why}). Choose another folder.", why=why)
        else:
            self._save.setText(tr("Saved"))
            self._save.setToolTip(tip(path))
            self._said.start()
        if failure != self._failure.text():
            say(self._failure, failure)
            self.refolded.emit()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self._text)
        self._copy.setText(tr("Copied"))
        self._said.start()

    def _say_nothing(self) -> None:
        self._copy.setText(tr("Copy"))
        self._save.setText(tr("Save…"))

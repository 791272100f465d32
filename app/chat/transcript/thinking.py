"""Thinking that came before an answer: one line to unfold, or its last lines while it grows."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QTextBlockFormat, QTextCursor, QTextOption
from PySide6.QtWidgets import QPushButton, QWidget

from app.chat.transcript.text.blocks import TextView
from app.chat.transcript.text.wrapping import LONGEST_WORD, wrap_mode
from app.history.records import thought_for
from app.theme.theme import CAPTION_PX, Theme
from app.theme.widgets import named

HEAD_PX = 20
INDENT_PX = 14
GAP_PX = 4
PEEK_LINES = 5
CAPTION_LINE_PX = 16
PEEK_CHARS = 2_000
"""More than the last lines ever hold; what is before them is not laid out while it cannot be seen."""


class ThinkingBlock(QWidget):
    """Shows its end while the thinking grows and nothing of it afterwards, unless the person wants all of it.

    Like other blocks it is told a width by :meth:`fit`; the message places it.
    """

    refolded = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._text = ""
        self._shown = ""
        self._seconds = 0.0
        self._growing = False
        self._open = False
        self.setObjectName("thinking")
        self.head = named(QPushButton(self), "thinking-head", kind="link")
        self.head.setStyleSheet("text-align: left;")
        self.head.setAutoDefault(True)  # Enter presses it, as Space does
        self.head.setCursor(Qt.CursorShape.PointingHandCursor)
        self.head.setToolTip("Show or hide what the model thought before it answered")
        self.head.clicked.connect(self.toggle)
        self.body = named(_Body(theme, self), title="What the model thought")
        self._name()

    @property
    def open(self) -> bool:
        """True if all of it is shown."""
        return self._open

    @property
    def text(self) -> str:
        return self._text

    def show_thinking(self, text: str, seconds: float, growing: bool) -> None:
        """The thinking so far, how long it took, and whether more is to come before the answer."""
        self._text, self._seconds, self._growing = text, seconds, growing
        self._name()
        self._fill()

    def toggle(self) -> None:
        self._open = not self._open
        # Who has no mouse reaches what is unfolded with Tab, and copies it.
        policy = Qt.FocusPolicy.StrongFocus if self._open else Qt.FocusPolicy.ClickFocus
        self.body.setFocusPolicy(policy)
        self._name()
        self._fill()
        self.refolded.emit()

    def restyle(self) -> None:
        self._shown = ""
        self.body.clear()
        self.body.restyle()
        self._fill()

    def fit(self, width: int) -> int:
        """Lay out for ``width`` pixels; returns the height."""
        head = self._theme.px(HEAD_PX)
        self.head.setGeometry(0, 0, min(width, self.head.sizeHint().width() + 8), head)
        if self.body.isHidden():
            return head
        inner = width - INDENT_PX
        full = self.body.fit(inner)
        height = full if self._open else min(full, PEEK_LINES * self._theme.px(CAPTION_LINE_PX))
        self.body.setGeometry(INDENT_PX, head + GAP_PX, inner, height)
        bar = self.body.verticalScrollBar()
        bar.setRange(0, full - height)
        bar.setValue(full - height)
        return head + GAP_PX + height

    def paintEvent(self, event: QPaintEvent) -> None:
        """A hairline along the left of the thinking sets it apart from the answer."""
        if not self.body.isHidden():
            box = self.body.geometry()
            QPainter(self).fillRect(4, box.top(), 1, box.height(), self._theme.color("line"))

    def _name(self) -> None:
        arrow = "▾" if self._open else "▸"
        seconds = round(self._seconds)
        title = f"Thinking… {seconds} s" if self._growing else thought_for(self._seconds)
        self.head.setText(f"{arrow} {title}")
        # A screen reader says a name whenever it is set: seconds that pass are not worth that.
        spoken = f"{'Thinking' if self._growing else title}, {'unfolded' if self._open else 'folded'}"
        if spoken != self.head.accessibleName():
            self.head.setAccessibleName(spoken)

    def _fill(self) -> None:
        """Bring the body to what is to be seen: nothing, the last lines, or all; a longer text is only appended to."""
        wanted = self._text if self._open else _end(self._text) if self._growing else ""
        self.body.setVisible(bool(wanted))
        if self._shown and wanted.startswith(self._shown):
            self.body.append_text(wanted[len(self._shown) :], wanted)
        elif wanted != self._shown:
            self.body.show_text(wanted)
        self._shown = wanted


class _Body(TextView):
    """Plain text in the muted colour."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._width = 0
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.restyle()

    def text_font(self) -> QFont:
        return self._theme.ui_font(CAPTION_PX)

    def fit(self, width: int) -> int:
        """The same, but setting a width lays out all of it again, which a long one that grows cannot afford."""
        if width != self._width:
            self._width = width
            return super().fit(width)
        return math.ceil(self.document().size().height())

    def restyle(self) -> None:
        self._width = 0
        self.document().setDefaultFont(self.text_font())
        self.setStyleSheet(f"color: {self._theme.tokens.mute};")

    def show_text(self, text: str) -> None:
        self.setWordWrapMode(wrap_mode(text))
        self.setPlainText(text)
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        look = QTextBlockFormat()
        minimum = QTextBlockFormat.LineHeightTypes.MinimumHeight.value
        look.setLineHeight(float(self._theme.px(CAPTION_LINE_PX)), minimum)
        cursor.mergeBlockFormat(look)

    def append_text(self, text: str, whole: str) -> None:
        mode = wrap_mode(whole[-len(text) - LONGEST_WORD :])
        if mode == QTextOption.WrapMode.WrapAnywhere:
            self.setWordWrapMode(mode)
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)


def _end(text: str) -> str:
    """The end of a long text, from the beginning of a line where there is one."""
    if len(text) <= PEEK_CHARS:
        return text
    start = text.find("\n", len(text) - PEEK_CHARS) + 1
    return text[start:] if 0 < start < len(text) - PEEK_CHARS // 2 else text[-PEEK_CHARS:]

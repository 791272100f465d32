"""A part of a message that is folded: one line, and what it stands for below once the person wants to see it."""

from __future__ import annotations

import math

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QTextBlockFormat, QTextCursor, QTextOption
from PySide6.QtWidgets import QPushButton, QWidget

from app.chat.transcript.text.blocks import TextView
from app.chat.transcript.text.selection import Selection
from app.chat.transcript.text.wrapping import LONGEST_WORD, wrap_mode
from app.language import tr
from app.theme.direction import fold_mark, mirror
from app.theme.theme import CAPTION_PX, Theme
from app.theme.widgets import button_text, named, tip

HEAD_PX = 20
INDENT_PX = 14
GAP_PX = 4
CAPTION_LINE_PX = 16


class Folded(QWidget):
    """Like other blocks it is told a width by :meth:`fit`; the message places it. ``name``: of the object."""

    refolded = Signal()
    elide = Qt.TextElideMode.ElideNone
    """Where a line that is too long for the width is cut."""

    def __init__(self, name: str, help_text: str, title: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._shown = ""
        self._open = False
        self.setObjectName(name)
        self.head = named(QPushButton(self), f"{name}-head", kind="link", tooltip=tip(help_text))
        self.head.setStyleSheet("text-align: left;")
        self.head.setAutoDefault(True)  # Enter presses it, as Space does
        self.head.setCursor(Qt.CursorShape.PointingHandCursor)
        self.head.clicked.connect(self.toggle)
        self.body = named(FoldedText(theme, self), title=title)

    @property
    def open(self) -> bool:
        """True if all of it is shown."""
        return self._open

    def words(self) -> tuple[str, str]:
        """What the line says, and what a screen reader says of it."""
        raise NotImplementedError

    def wanted(self) -> str:
        """The text that is to be seen now, "" for none."""
        raise NotImplementedError

    def height_of(self, full: int) -> int:
        """Pixels of the ``full`` height of the text that are shown, its end."""
        return full

    def toggle(self) -> None:
        self._open = not self._open
        # Who has no mouse reaches what is unfolded with Tab, and copies it.
        policy = Qt.FocusPolicy.StrongFocus if self._open else Qt.FocusPolicy.ClickFocus
        self.body.setFocusPolicy(policy)
        self.refresh()
        self.refolded.emit()

    def refresh(self) -> None:
        """Bring the line and the body to what is to be seen."""
        self._name()
        self._fill()

    def restyle(self) -> None:
        self._shown = ""
        self.body.clear()
        self.body.restyle()
        self._fill()

    def fit(self, width: int) -> int:
        """Lay out for ``width`` pixels; returns the height."""
        head = self._theme.px(HEAD_PX)
        if self.elide is not Qt.TextElideMode.ElideNone:
            self._name()
            self.head.setText(self.head.fontMetrics().elidedText(self.head.text(), self.elide, width - 16))
        self.head.setGeometry(mirror(QRect(0, 0, min(width, self.head.sizeHint().width() + 8), head), width))
        if self.body.isHidden():
            return head
        inner = width - INDENT_PX
        full = self.body.fit(inner)
        height = self.height_of(full)
        self.body.setGeometry(mirror(QRect(INDENT_PX, head + GAP_PX, inner, height), width))
        bar = self.body.verticalScrollBar()
        bar.setRange(0, full - height)
        bar.setValue(full - height)
        return head + GAP_PX + height

    def paintEvent(self, event: QPaintEvent) -> None:
        """A hairline along the side sets it apart from the answer."""
        if not self.body.isHidden():
            box = self.body.geometry()
            line = mirror(QRect(4, box.top(), 1, box.height()), self.width())
            QPainter(self).fillRect(line, self._theme.color("line"))

    def _name(self) -> None:
        title, spoken = self.words()
        self.head.setText(button_text(f"{fold_mark(self._open)} {title}"))
        # A screen reader says a name whenever it is set: figures that pass are not worth that.
        spoken = tr("{name}, unfolded", name=spoken) if self._open else tr("{name}, folded", name=spoken)
        if spoken != self.head.accessibleName():
            self.head.setAccessibleName(spoken)

    def _fill(self) -> None:
        """Bring the body to what is to be seen; a longer text is only appended to."""
        wanted = self.wanted()
        self.body.setVisible(bool(wanted))
        if self._shown and wanted.startswith(self._shown):
            self.body.append_text(wanted[len(self._shown) :], wanted)
        elif wanted != self._shown:
            self.body.show_text(wanted)
        self._shown = wanted


class FoldedText(TextView):
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
        selection = Selection.of(self)
        self.setPlainText(text)
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        look = QTextBlockFormat()
        minimum = QTextBlockFormat.LineHeightTypes.MinimumHeight.value
        look.setLineHeight(float(self._theme.px(CAPTION_LINE_PX)), minimum)
        cursor.mergeBlockFormat(look)
        if selection is not None:
            selection.restore(self)

    def append_text(self, text: str, whole: str) -> None:
        mode = wrap_mode(whole[-len(text) - LONGEST_WORD :])
        if mode == QTextOption.WrapMode.WrapAnywhere:
            self.setWordWrapMode(mode)
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)

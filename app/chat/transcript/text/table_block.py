"""A table of a message: it scrolls sideways where it is too wide, and is copied as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QTextBlockFormat, QTextCursor, QTextOption
from PySide6.QtWidgets import QFrame, QPushButton, QWidget

from app.chat.transcript.text.blocks import TextBlock, TextView
from app.chat.transcript.text.tint import TintRun
from app.chat.transcript.text.wrapping import wrap_mode
from app.history.records import TextSpan
from app.language import tr
from app.texts.markdown import MarkdownBlock, cells
from app.theme.theme import Theme
from app.theme.widgets import named, tip

ACTIONS_PX = 20
"""The strip below the table with its button."""
COPY = tr("Copy as CSV")


def to_csv(rows: Sequence[Sequence[str]]) -> str:
    """Comma-separated values by RFC 4180, as spreadsheets read them."""
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue()


class TableText(TextBlock):
    """The text inside a table block: as wide as its longest words need, with a scroll bar where that is too much."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)

    def wrap_mode(self, text: str) -> QTextOption.WrapMode:
        modes = QTextOption.WrapMode
        return modes.WrapAnywhere if wrap_mode(text) == modes.WrapAnywhere else modes.WordWrap

    def _settle(self) -> None:
        """No room below the table: Qt puts an empty line behind it."""
        super()._settle()
        last = self.document().lastBlock()
        if (table := QTextCursor(last.previous()).currentTable()) is None:
            return
        shape = table.format()
        shape.setBottomMargin(0)
        table.setFormat(shape)
        look = last.blockFormat()
        look.setLineHeight(1.0, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        QTextCursor(last).setBlockFormat(look)

    def fit(self, width: int) -> int:
        height = super().fit(width)
        wide = math.ceil(self.document().size().width()) > width
        # Who has no mouse reaches what is out of sight with Tab and the arrow keys.
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if wide else self.focus_policy)
        return height + (self.horizontalScrollBar().sizeHint().height() if wide else 0)


class TableBlock(QFrame):
    """A table with a button that copies it, seen while the message is under the mouse or has the keyboard."""

    resized = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._block = MarkdownBlock("table", 0, 0, "", 0)
        self.text = named(TableText(theme, self), title=tr("Table"))
        self.text.resized.connect(self.resized)
        self._copy = named(
            QPushButton(COPY, self),
            "copy-table",
            title=tr("Copy this table as CSV"),
            tooltip=tip(tr("As comma-separated values, for a spreadsheet")),
            clicked=self._on_copy,
            kind="link",
        )
        self._copy.hide()
        self._said = QTimer(self, singleShot=True, interval=1500)
        self._said.timeout.connect(lambda: self._copy.setText(COPY))

    @property
    def csv(self) -> str:
        return to_csv(cells(self._block.body))

    @property
    def view(self) -> TextView:
        """The text itself."""
        return self.text

    @property
    def tint_runs(self) -> list[TintRun]:
        return self.text.tint_runs

    def show_actions(self, visible: bool) -> None:
        self._copy.setVisible(visible or self._copy.hasFocus())

    def show_block(self, block: MarkdownBlock, growing: bool) -> None:
        self._block = block
        self.text.show_block(block, growing)

    def fit(self, width: int) -> int:
        height = self.text.fit(width)
        self.text.setGeometry(0, 0, width, height)
        button, strip = self._copy.sizeHint().width(), self._theme.px(ACTIONS_PX)
        self._copy.setGeometry(0, height, button, strip)
        return height + strip

    def set_tint(self, spans: Sequence[TextSpan] | None) -> None:
        self.text.set_tint(spans)

    def restyle(self) -> None:
        self.text.restyle()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.csv)
        self._copy.setText(tr("Copied"))
        self._said.start()

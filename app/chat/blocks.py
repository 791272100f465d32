"""Text blocks of a message. Each block is told a width and answers with its height; the message places them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import QEvent, Qt, QUrl
from PySide6.QtGui import (
    QDesktopServices,
    QFont,
    QHelpEvent,
    QPaintEvent,
    QTextBlockFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QToolTip, QWidget

from app.chat.markdown import Alignment, Block, align, to_html
from app.chat.tint import TintRun, in_utf16, paint_runs, run_at, tinted_runs, who
from app.chat.wrapping import wrap_mode
from app.history.records import Span
from app.theme.theme import Theme

LINE_PX = 20


class BlockWidget(Protocol):
    """What a message needs of each of its blocks."""

    def fit(self, width: int) -> int:
        """Lay out for ``width`` pixels; returns the height."""
        ...

    def show_block(self, block: Block, growing: bool) -> None: ...

    def set_tint(self, spans: Sequence[Span] | None) -> None:
        """Colour the background by where tokens came from; ``spans`` cover the whole message, None takes it off."""
        ...

    def restyle(self) -> None:
        """After a change of theme."""
        ...


class TextView(QTextBrowser):
    """Read-only rich text without scroll bars, as high as its document. Only web links open, and in the browser."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._runs: list[TintRun] = []
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setOpenLinks(False)
        self.anchorClicked.connect(self._open)
        self.document().setDocumentMargin(0)
        self.document().setUndoRedoEnabled(False)
        self.viewport().setAutoFillBackground(False)
        self.setWordWrapMode(wrap_mode(""))

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the transcript scrolls, never a block

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:  # the style sheet gave the widget a font; the document keeps its own
            self.document().setDefaultFont(self.text_font())

    def text_font(self) -> QFont:
        return self._theme.ui_font()

    def fit(self, width: int) -> int:
        self.document().setTextWidth(width)
        return math.ceil(self.document().size().height())

    def natural_width(self) -> int:
        """The width the text would take without wrapping, in pixels."""
        self.document().setTextWidth(-1)
        return math.ceil(self.document().idealWidth())

    @property
    def tint_runs(self) -> list[TintRun]:
        """What is tinted now, in Qt's positions."""
        return self._runs

    def mark(self, runs: list[TintRun]) -> None:
        """Tint these runs (Python indices into toPlainText) and nothing else."""
        text = self.toPlainText() if runs else ""
        runs = in_utf16(runs, text) if text and not text.isascii() else runs
        if runs != self._runs:
            self._runs = runs
            self.viewport().update()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and self._runs:
            assert isinstance(event, QHelpEvent)
            run = run_at(self, event.pos(), self._runs)
            if run is not None:
                QToolTip.showText(event.globalPos(), who(run), self)
                return True
            QToolTip.hideText()
        return super().viewportEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._runs:
            paint_runs(self, event.rect(), self._runs, self._theme)
        super().paintEvent(event)

    def _open(self, url: QUrl) -> None:
        if url.scheme() in ("http", "https"):
            QDesktopServices.openUrl(url)


class TextBlock(TextView):
    """One or several Markdown blocks that are not code, or plain text (what the person wrote)."""

    def __init__(self, theme: Theme, parent: QWidget, plain: bool = False) -> None:
        super().__init__(theme, parent)
        self._plain = plain
        self.setAccessibleName("Message text")
        self._block = Block("text", 0, 0, "", 0)
        self._aligned = Alignment("", "", [])

    def show_block(self, block: Block, growing: bool) -> None:
        self._block = block
        self._render()

    def set_tint(self, spans: Sequence[Span] | None) -> None:
        if not spans:
            self.mark([])
            return
        shown, source = self.toPlainText(), self._block.body
        known = self._aligned.prefix(shown, source)
        self._aligned = Alignment(shown, source, align(shown, source, known))
        self.mark(tinted_runs(self._aligned.where, self._block.body_start, spans))

    def restyle(self) -> None:
        self._render()

    def _render(self) -> None:
        document = self.document()
        document.setDefaultFont(self.text_font())
        self.setWordWrapMode(wrap_mode(self._block.body))
        if self._plain:
            self.setPlainText(self._block.body)
        else:
            document.setDefaultStyleSheet(_document_style(self._theme))
            self.setHtml(to_html(self._block.body))
        self._settle()

    def _settle(self) -> None:
        """LOOK's line height, and no margin at the outer edges: the message decides the gaps."""
        cursor = QTextCursor(self.document())
        block, last = self.document().begin(), self.document().lastBlock()
        while block.isValid():
            look = block.blockFormat()
            height = float(self._theme.px(LINE_PX))
            look.setLineHeight(height, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
            if block.blockNumber() == 0:
                look.setTopMargin(0)
            if block == last:
                look.setBottomMargin(0)
            cursor.setPosition(block.position())
            cursor.setBlockFormat(look)
            block = block.next()


def _document_style(theme: Theme) -> str:
    t = theme.tokens
    mono = theme.mono_font().family()
    return (
        f"p, ul, ol, table, blockquote {{ margin-top: 0; margin-bottom: 8px; }} li {{ margin-bottom: 2px; }}"
        f"h1 {{ font-size: {theme.px(18)}px; font-weight: 600; margin: 8px 0; }}"
        f"h2 {{ font-size: {theme.px(16)}px; font-weight: 600; margin: 8px 0 6px 0; }}"
        f"h3, h4, h5, h6 {{ font-size: {theme.px(14)}px; font-weight: 600; margin: 6px 0 4px 0; }}"
        f"code {{ font-family: '{mono}'; font-size: {theme.px(13)}px; background-color: {t.raised}; }}"
        f"a {{ color: {t.accent}; text-decoration: none; }} blockquote {{ color: {t.mute}; margin-left: 12px; }}"
        f"table {{ border-collapse: collapse; border: 1px solid {t.line}; }}"
        f"th, td {{ padding: 4px 10px; border: 1px solid {t.line}; }} th {{ font-weight: 600; }}"
    )

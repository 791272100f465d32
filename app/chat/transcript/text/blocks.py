"""Text blocks of a message. Each block is told a width and answers with its height; the message places them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, QRectF, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QFont,
    QHelpEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextFormat,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QToolTip, QWidget

from app.chat.transcript.links import ask_to_open
from app.chat.transcript.text.formula_object import (
    FormulaPainter,
    make_objects,
    selected_html,
    selected_source,
    sources,
    to_object,
)
from app.chat.transcript.text.selection import Selection
from app.chat.transcript.text.tint import TintRun, in_utf16, paint_runs, run_at, tinted_runs, who
from app.chat.transcript.text.unfinished import completed
from app.chat.transcript.text.wrapping import wrap_mode
from app.history.records import TextSpan
from app.language import tr
from app.texts.exact import selected
from app.texts.formulas import draw_soon
from app.texts.markdown import OBJECT, Alignment, MarkdownBlock, align, to_html
from app.theme.theme import Theme
from app.theme.widgets import tip

LINE_PX = 20
QUOTE_PX = 14
"""The indentation of a quote, per level."""
HEADINGS_PX = (18, 16, 14)
"""Text sizes of headings; from the third level on they are bold only."""
ABOVE_HEADING_PX, BELOW_HEADING_PX = 14, 4
RETRY_MS = 20
"""Until formulas that had to wait are tried again."""


class TextView(QTextBrowser):
    """Read-only rich text without scroll bars, as high as its document. Links ask before they open."""

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
        """The transcript scrolls, a block only sideways, where it is wider than its place."""
        sideways = abs(event.angleDelta().x()) > abs(event.angleDelta().y())
        if sideways and self.horizontalScrollBar().maximum():
            super().wheelEvent(event)
        else:
            event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """The ends that Home and End go to are the transcript's."""
        if (
            event.key() in (Qt.Key.Key_Home, Qt.Key.Key_End)
            and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        ):
            event.ignore()
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:  # the style sheet gave the widget a font; the document keeps its own
            self.document().setDefaultFont(self.text_font())

    def text_font(self) -> QFont:
        return self._theme.ui_font()

    def createMimeDataFromSelection(self) -> QMimeData:
        """Return the selection for the clipboard: formulas as LaTeX, every letter unchanged, also a no-break space."""
        copied = super().createMimeDataFromSelection()
        copied.html()  # asking for it fills in every format, which would take the place of what is set
        copied.setText(selected_source(self.textCursor()))
        if OBJECT in selected(self.textCursor()):
            copied.setHtml(selected_html(self.textCursor()))
            for name in ("text/markdown", "application/vnd.oasis.opendocument.text"):
                copied.removeFormat(name)
        return copied

    def fit(self, width: int) -> int:
        self.document().setTextWidth(width)
        return math.ceil(self.document().size().height())

    def natural_width(self) -> int:
        """The width the text would take without wrapping, in pixels."""
        self.document().setTextWidth(-1)
        return math.ceil(self.document().idealWidth())

    @property
    def tint_runs(self) -> list[TintRun]:
        """Runs that are tinted now, in Qt's positions."""
        return self._runs

    def mark(self, runs: list[TintRun]) -> None:
        """Tint these runs (Python indices into toPlainText) and nothing else."""
        text = self.toPlainText() if runs else ""
        runs = in_utf16(runs, text) if text and not text.isascii() else runs
        if runs != self._runs:
            self._runs = runs
            self.viewport().update()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.ToolTip:
            return super().viewportEvent(event)
        assert isinstance(event, QHelpEvent)
        words = self._tip_at(event.pos())
        if words:
            QToolTip.showText(event.globalPos(), tip(words), self)
        else:
            QToolTip.hideText()
        return True

    def _tip_at(self, point: QPoint) -> str:
        """Origin of a tinted word, LaTeX of a formula, or why one is not drawn; "" for other text."""
        run = run_at(self, point, self._runs) if self._runs else None
        if run is not None:
            return who(run)
        shift = QPoint(self.horizontalScrollBar().value(), self.verticalScrollBar().value())
        look = self.document().documentLayout().formatAt(QPointF(point + shift))
        return look.toCharFormat().toolTip()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._runs:
            paint_runs(self, event.rect(), self._runs, self._theme)
        super().paintEvent(event)

    def _open(self, url: QUrl) -> None:
        ask_to_open(url, self._theme, self)


class TextBlock(TextView):
    """One or several Markdown blocks that are not code, or plain text (what the person wrote)."""

    resized = Signal()
    """Formulas were drawn that had to wait: it may have another height now."""

    def __init__(self, theme: Theme, parent: QWidget, plain: bool = False) -> None:
        super().__init__(theme, parent)
        self._plain = plain
        self._growing = False
        self._waiting: list[str] = []
        """Formulas that are shown as their source until there was time to draw them."""
        self._painter: FormulaPainter | None = None
        self._retry: QTimer | None = None
        self.setAccessibleName(tr("Message text"))
        self._block = MarkdownBlock("text", 0, 0, "", 0)
        self._aligned = Alignment("", "", [])
        self._quotes = self._links = False

    @property
    def focus_policy(self) -> Qt.FocusPolicy:
        """Who has no mouse reaches links with Tab, and opens them with Enter."""
        return Qt.FocusPolicy.StrongFocus if self._links else Qt.FocusPolicy.ClickFocus

    @property
    def view(self) -> TextView:
        """The text itself."""
        return self

    def show_block(self, block: MarkdownBlock, growing: bool) -> None:
        self._block, self._growing = block, growing
        self._render()

    def set_tint(self, spans: Sequence[TextSpan] | None) -> None:
        if not spans:
            self.mark([])
            return
        shown, source = self.toPlainText(), self._block.body
        known = self._aligned.prefix(shown, source)
        self._aligned = Alignment(shown, source, align(shown, source, known, sources(self.document())))
        self.mark(tinted_runs(self._aligned.where, self._block.body_start, spans))

    def restyle(self) -> None:
        self._render()

    def wrap_mode(self, text: str) -> QTextOption.WrapMode:
        return wrap_mode(text)

    def _render(self) -> None:
        selection = Selection.of(self)
        document = self.document()
        document.setDefaultFont(self.text_font())
        self.setWordWrapMode(self.wrap_mode(self._block.body))
        if self._plain:
            self.setPlainText(self._block.body)
        else:
            document.setDefaultStyleSheet(_document_style(self._theme))
            self._waiting = []
            body = completed(self._block.body) if self._growing else self._block.body
            html = to_html(body, self._formula, self._growing)
            self.setHtml(html)
            self._links = "<a href" in html
            self.setFocusPolicy(self.focus_policy)
        together = QTextCursor(document)
        together.beginEditBlock()  # Qt would lay out all of it after each of these changes
        if self._painter is not None:
            make_objects(document)
        self._settle()
        together.endEditBlock()
        self._quotes = ">" in self._block.body
        if selection is not None:
            selection.restore(self)
        if self._waiting:
            self._draw_later()

    def _formula(self, source: str, alone: bool) -> str:
        if self._painter is None:
            self._painter = FormulaPainter(self._theme, self.document())
        result = draw_soon(source)
        if result is None:
            self._waiting.append(source)
        return to_object(source, result, alone)

    def _draw_later(self) -> None:
        if self._retry is None:
            self._retry = QTimer(self, singleShot=True, interval=RETRY_MS)
            self._retry.timeout.connect(self._draw_waiting)
        self._retry.start()

    def _draw_waiting(self) -> None:
        """Draw some of the formulas that wait, and show them when all of them are drawn."""
        while self._waiting and draw_soon(self._waiting[-1]) is not None:
            del self._waiting[-1]
        if self._waiting:
            self._draw_later()
        else:
            self._render()
            self.resized.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self._quotes:
            self._paint_bars()

    def _paint_bars(self) -> None:
        """A bar before every quote, one for each level."""
        layout, painter = self.document().documentLayout(), QPainter(self.viewport())
        color, block = self._theme.color("line"), self.document().begin()
        while block.isValid():
            place, below = layout.blockBoundingRect(block), block.next()
            for level in range(_quote_level(block)):
                goes_on = below.isValid() and _quote_level(below) > level
                bottom = layout.blockBoundingRect(below).top() if goes_on else place.bottom()
                left = level * QUOTE_PX
                if block.textDirection() is Qt.LayoutDirection.RightToLeft:
                    left = round(self.document().textWidth()) - left - 2
                painter.fillRect(QRectF(left, place.top(), 2, bottom - place.top()), color)
            block = below

    def _settle_heading(self, block: QTextBlock) -> None:
        """Qt scales headings by its own table, whatever the style sheet says."""
        size = self._theme.px(HEADINGS_PX[min(block.blockFormat().headingLevel(), len(HEADINGS_PX)) - 1])
        cursor = QTextCursor(self.document())
        for part in cast(Iterable[QTextBlock.iterator], block.begin()):
            fragment = part.fragment()
            look = fragment.charFormat()
            look.clearProperty(QTextFormat.Property.FontSizeAdjustment)
            look.setProperty(QTextFormat.Property.FontPixelSize, size)
            look.setFontWeight(QFont.Weight.DemiBold)
            cursor.setPosition(fragment.position())
            cursor.setPosition(fragment.position() + fragment.length(), QTextCursor.MoveMode.KeepAnchor)
            cursor.setCharFormat(look)

    def _settle(self) -> None:
        """LOOK's line height, and no margin at the outer edges: the message decides the gaps."""
        cursor = QTextCursor(self.document())
        block, last = self.document().begin(), self.document().lastBlock()
        if (table := QTextCursor(block.next()).currentTable()) is not None and not block.text():
            shape = table.format()  # the first of all: Qt puts an empty line before it
            shape.setTopMargin(0)
            table.setFormat(shape)
        while block.isValid():
            look = block.blockFormat()
            if look.headingLevel():
                self._settle_heading(block)
                look.setTopMargin(ABOVE_HEADING_PX)
                look.setBottomMargin(BELOW_HEADING_PX)
            if look.hasProperty(QTextFormat.Property.BlockTrailingHorizontalRulerWidth):
                look.setBackground(self._theme.color("line"))
            if look.leftMargin() and block.textDirection() is Qt.LayoutDirection.RightToLeft:
                look.setRightMargin(look.leftMargin())  # Qt's style sheets know no side but the left
                look.setLeftMargin(0)
            height = float(self._theme.px(LINE_PX))
            look.setLineHeight(height, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
            if block.blockNumber() == 0:
                look.setTopMargin(0)
            if block == last:
                look.setBottomMargin(0)
            cursor.setPosition(block.position())
            cursor.setBlockFormat(look)
            block = block.next()


def _quote_level(block: QTextBlock) -> int:
    look = block.blockFormat()
    return round(max(look.leftMargin(), look.rightMargin()) / QUOTE_PX)


def _document_style(theme: Theme) -> str:
    t = theme.tokens
    mono = theme.mono_font().family()
    return (
        f"p, ul, ol, blockquote {{ margin-top: 0; margin-bottom: 8px; }} li {{ margin-bottom: 2px; }}"  # not shown
        "table { margin-top: 8px; margin-bottom: 8px; }"  # Qt takes no margin of what is above a table
        f"code {{ font-family: '{mono}'; font-size: {theme.px(13)}px; background-color: {t.raised}; }}"
        f"a {{ color: {t.accent}; text-decoration: none; }}"
        f"blockquote {{ color: {t.mute}; margin-left: {QUOTE_PX}px; margin-right: 0; }}"
        f"table {{ border-collapse: collapse; border: 1px solid {t.line}; }}"
        f"th, td {{ padding: 4px 10px; border: 1px solid {t.line}; }} th {{ font-weight: 600; text-align: left; }}"
    )

"""Formulas in a document: objects that are drawn as vectors, in the size and colour of the text and on its baseline."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from html import escape

from PySide6.QtCore import QByteArray, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QFont,
    QFontMetrics,
    QFontMetricsF,
    QPainter,
    QPyTextObject,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtSvg import QSvgRenderer

from app.texts.exact import selected
from app.texts.formulas import INK, Drawing, Result, bare, draw, known
from app.texts.markdown import OBJECT
from app.texts.markdown_rules import as_lines
from app.theme.theme import Theme

FORMULA = QTextFormat.ObjectTypes.UserObject.value + 1
"""Type of the objects; their tooltip is the LaTeX."""
_Place = QTextCharFormat.VerticalAlignment
_UNIT = OBJECT.encode("utf-16-le")
_STRUT = "\u200b"
"""A letter without width, which gives a line that holds but a formula the baseline and the depth of text."""
_HANGS = 0.28
"""Ems below the baseline that the descenders of the text take anyway."""
_X_HEIGHT = 0.467
"""Height of an x in the font for maths, ems."""
_GROWN = (1.0, 1.2)
"""Least and most that a formula is enlarged by, so that its letters are as high as those of the text."""


def to_object(source: str, result: Result | None, alone: bool) -> str:
    """HTML of a formula: an object, or its source in the style of code, with the reason as a tooltip if there is one.

    :func:`make_objects` then makes it one.
    """
    if isinstance(result, Drawing):
        # Qt puts an object on the baseline or in the middle of the line, and only the latter gives it room below.
        whole = alone and bare(source)[1]
        place = "top" if whole else "middle" if result.descent > _HANGS else "baseline"
        strut = _STRUT if alone and not whole else ""
        look = f"vertical-align: {place}"
        return f'<span title="{escape(source)}" style="{look}">{OBJECT}</span>{strut}'  # not shown
    title = f' title="{escape(result.reason)}"' if result is not None else ""
    return f"<code{title}>{as_lines(source)}</code>"


def make_objects(document: QTextDocument) -> None:
    """Make objects of what :func:`to_object` left in the document; Qt takes very long for HTML with many images."""
    look = QTextCharFormat()
    look.setObjectType(FORMULA)
    for cursor in _letters(document):
        if isinstance(known(cursor.charFormat().toolTip()), Drawing):
            cursor.mergeCharFormat(look)


def source_of(look: QTextFormat) -> str:
    """LaTeX of the formula with this format, with its delimiters; "" for none."""
    return look.toCharFormat().toolTip() if look.objectType() == FORMULA else ""


def sources(document: QTextDocument, start: int = 0, end: int | None = None) -> list[str]:
    """LaTeX of the formulas between two positions (all: to the end), in their order; "" for another such letter."""
    return [source_of(cursor.charFormat()) for cursor in _letters(document, start, end)]


def selected_source(cursor: QTextCursor) -> str:
    """The selected text, with formulas as LaTeX."""
    first, *rest = selected(cursor).replace(OBJECT + _STRUT, OBJECT).split(OBJECT)
    formulas = sources(cursor.document(), cursor.selectionStart(), cursor.selectionEnd())
    return first + "".join((formula or OBJECT) + part for formula, part in zip(formulas, rest, strict=False))


def selected_html(cursor: QTextCursor) -> str:
    """The selection as HTML, with formulas as LaTeX: Qt leaves out objects that it does not know."""
    copied = QTextDocument()
    QTextCursor(copied).insertFragment(cursor.selection())
    for found in reversed([QTextCursor(letter) for letter in _letters(copied)]):
        if formula := source_of(found.charFormat()):
            strut = QTextCursor(copied)
            strut.setPosition(found.selectionEnd())
            strut.movePosition(QTextCursor.MoveOperation.Right, QTextCursor.MoveMode.KeepAnchor)
            if strut.selectedText() == _STRUT:
                strut.removeSelectedText()
            found.insertText(formula, QTextCharFormat())
    return copied.toHtml()


def _letters(document: QTextDocument, start: int = 0, end: int | None = None) -> Iterator[QTextCursor]:
    """A cursor that selects each letter between two positions that stands for an object."""
    units = document.toRawText().encode("utf-16-le", "surrogatepass")
    cursor, place = QTextCursor(document), units.find(_UNIT, 2 * start)
    while 0 <= place < (len(units) if end is None else 2 * end):
        if place % 2 == 0:
            cursor.setPosition(place // 2)
            cursor.setPosition(place // 2 + 1, QTextCursor.MoveMode.KeepAnchor)
            yield cursor
        place = units.find(_UNIT, place + 1)


class FormulaPainter(QPyTextObject):
    """Lays out and draws the formulas of one document."""

    def __init__(self, theme: Theme, document: QTextDocument) -> None:
        super().__init__(document)
        self._theme = theme
        document.documentLayout().registerHandler(FORMULA, self)

    def intrinsicSize(self, document: QTextDocument, position: int, look: QTextFormat) -> QSizeF:
        drawing, em, font = self._measure(document, position, look)
        if drawing is None:
            return QSizeF()
        ascent, descent = drawing.ascent * em, drawing.descent * em
        place, half = _place(look), _half_x(font)
        if place == _Place.AlignMiddle:
            return QSizeF(drawing.width * em, max(2 * ascent - half, 2 * descent + half))
        return QSizeF(drawing.width * em, ascent + descent if place == _Place.AlignTop else ascent)

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, look: QTextFormat
    ) -> None:
        drawing, em, font = self._measure(document, position, look)
        if drawing is None:
            return
        area = QRectF(rect)
        top = area.top()
        if (place := _place(look)) == _Place.AlignMiddle:
            top += (area.height() + _half_x(font)) / 2 - drawing.ascent * em
        elif place != _Place.AlignTop:
            top = area.bottom() - drawing.ascent * em
        brush = look.foreground()
        color = brush.color() if brush.style() != Qt.BrushStyle.NoBrush else self._theme.color("text")
        height = (drawing.ascent + drawing.descent) * em
        _renderer(drawing.svg, color.name()).render(painter, QRectF(area.left(), top, drawing.width * em, height))

    def _measure(self, document: QTextDocument, place: int, look: QTextFormat) -> tuple[Drawing | None, float, QFont]:
        """The drawing, pixels of its em (fewer where the line is shorter than the formula), and the text's font."""
        font = look.toCharFormat().font()
        result = draw(source) if (source := source_of(look)) else None
        if not isinstance(result, Drawing):
            return None, 0.0, font
        em = _em_of(font.toString())
        room = document.textWidth() - document.indentWidth() * document.findBlock(place).blockFormat().indent()
        if document.textWidth() > 0:
            em = min(em, max(1.0, room - 2) / result.width)
        return result, em, font


def _place(look: QTextFormat) -> _Place:
    """Where it stands: on the baseline, in the middle of the line, or as all of it (at its top)."""
    return look.toCharFormat().verticalAlignment()


@lru_cache(maxsize=16)
def _em_of(font: str) -> float:
    described = QFont()
    described.fromString(font)
    least, most = (grown * described.pixelSize() for grown in _GROWN)
    return min(most, max(least, QFontMetricsF(described).xHeight() / _X_HEIGHT))


def _half_x(font: QFont) -> float:
    """What Qt raises the middle of a line by, pixels: it counts in whole ones."""
    return QFontMetrics(font).xHeight() / 2


@lru_cache(maxsize=128)
def _renderer(svg: bytes, color: str) -> QSvgRenderer:
    """About as many as are in sight: each takes 0.1 MB, and as many milliseconds."""
    return QSvgRenderer(QByteArray(zlib.decompress(svg).replace(f'"{INK}"'.encode(), f'"{color}"'.encode())))

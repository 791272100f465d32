"""Formulas in a document: images that are drawn as vectors, in the size and colour of the text and on its baseline."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from urllib.parse import quote, unquote

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

from app.chat.transcript.text.formulas import INK, Drawing, Result, bare, draw
from app.chat.transcript.text.markdown import OBJECT
from app.chat.transcript.text.markdown_rules import as_lines
from app.texts.exact import selected
from app.theme.theme import Theme

_Place = QTextCharFormat.VerticalAlignment
_UNIT = OBJECT.encode("utf-16-le")
_PREFIX = "formula:"
_IMAGE = re.compile(rf'<img src="{_PREFIX}([^"]*)"[^>]*>')
_HANGS = 0.28
"""Ems below the baseline that the descenders of the text take anyway."""
_X_HEIGHT = 0.467
"""Height of an x in the font for maths, ems."""
_GROWN = (1.0, 1.2)
"""Least and most that a formula is enlarged by, so that its letters are as high as those of the text."""


def to_image(source: str, result: Result | None, alone: bool) -> str:
    """HTML of a formula: an image, or its source in the style of code, with the reason as a tooltip if there is one."""
    if isinstance(result, Drawing):
        # Qt puts an image on the baseline or in the middle of the line, and only the latter gives it room below.
        hangs = alone or result.descent > _HANGS
        place = "top" if bare(source)[1] and alone else "middle" if hangs else "baseline"
        return f'<img src="{_PREFIX}{quote(source, safe="")}" style="vertical-align: {place}" />'
    title = f' title="{escape(result.reason)}"' if result is not None else ""
    return f"<code{title}>{as_lines(source)}</code>"


def source_of(look: QTextFormat) -> str:
    """LaTeX of the formula with this format, with its delimiters; "" for none."""
    name = look.toImageFormat().name() if look.isImageFormat() else ""
    return unquote(name[len(_PREFIX) :]) if name.startswith(_PREFIX) else ""


def sources(document: QTextDocument, start: int = 0, end: int | None = None) -> list[str]:
    """LaTeX of the formulas between two positions (all: to the end), in their order; "" for another object."""
    units = document.toRawText().encode("utf-16-le", "surrogatepass")
    cursor, found, place = QTextCursor(document), [], units.find(_UNIT, 2 * start)
    while 0 <= place < (len(units) if end is None else 2 * end):
        if place % 2 == 0:
            cursor.setPosition(place // 2 + 1)
            found.append(source_of(cursor.charFormat()))
        place = units.find(_UNIT, place + 1)
    return found


def selected_source(cursor: QTextCursor) -> str:
    """The selected text, with formulas as LaTeX."""
    text = selected(cursor)
    if OBJECT not in text:
        return text
    first, *rest = text.split(OBJECT)
    formulas = sources(cursor.document(), cursor.selectionStart(), cursor.selectionEnd())
    return first + "".join((formula or OBJECT) + part for formula, part in zip(formulas, rest, strict=True))


def without_images(html: str) -> str:
    """HTML for the clipboard, with formulas as LaTeX."""
    return _IMAGE.sub(lambda found: escape(unquote(found[1])), html)


class FormulaPainter(QPyTextObject):
    """Lays out and draws the formulas of one document."""

    def __init__(self, theme: Theme, document: QTextDocument) -> None:
        super().__init__(document)
        self._theme = theme
        document.documentLayout().registerHandler(QTextFormat.ObjectTypes.ImageObject.value, self)

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
        least, most = _GROWN
        em = min(most * font.pixelSize(), max(least * font.pixelSize(), QFontMetricsF(font).xHeight() / _X_HEIGHT))
        room = document.textWidth() - document.indentWidth() * document.findBlock(place).blockFormat().indent()
        if document.textWidth() > 0:
            em = min(em, max(1.0, room - 2) / result.width)
        return result, em, font


def _place(look: QTextFormat) -> _Place:
    """Where it stands: on the baseline, in the middle of the line, or as all of it (at its top)."""
    return look.toCharFormat().verticalAlignment()


def _half_x(font: QFont) -> float:
    """What Qt raises the middle of a line by, pixels: it counts in whole ones."""
    return QFontMetrics(font).xHeight() / 2


@lru_cache(maxsize=512)
def _renderer(svg: str, color: str) -> QSvgRenderer:
    return QSvgRenderer(QByteArray(svg.replace(f'"{INK}"', f'"{color}"').encode()))

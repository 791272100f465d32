"""A chat as a PDF, laid out by Qt."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QBuffer, QIODevice, QMarginsF, QSizeF
from PySide6.QtGui import (
    QPageLayout,
    QPageSize,
    QPdfWriter,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
)

from app.history.records import Chat, StoredMessage
from app.history.transfer.html import paper_parts, paper_style

_DOTS, _PIXELS = 300, 96
"""Of an inch: those of the page, and of the layout, as CSS counts them."""
_MARGIN_MM = 18.0
_POINTS = 10.0
_ABOVE = 18.0
"""Pixels above a message."""


def to_pdf(chat: Chat, path: Sequence[StoredMessage]) -> bytes:
    """``path`` is the branch to export, first message first. Any thread may ask."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setResolution(_DOTS)
    writer.setPageSize(QPageSize(QPageSize.PageSizeId.A4))
    margins = QMarginsF(_MARGIN_MM, _MARGIN_MM, _MARGIN_MM, _MARGIN_MM)
    writer.setPageMargins(margins, QPageLayout.Unit.Millimeter)
    writer.setTitle(chat.title)
    document = QTextDocument()
    document.setDocumentMargin(0)
    document.setDefaultStyleSheet(paper_style())
    font = document.defaultFont()
    font.setPointSizeF(_POINTS)
    document.setDefaultFont(font)
    between = QTextBlockFormat()
    between.setTopMargin(_ABOVE)
    cursor = QTextCursor(document)
    # A message at a time: Qt lets no other thread have its turn while it reads HTML.
    for number, part in enumerate(paper_parts(chat, path)):
        if number:
            cursor.insertBlock(between, QTextCharFormat())
        cursor.insertHtml(part)
    document.setPageSize(QSizeF(writer.width(), writer.height()) * (_PIXELS / _DOTS))
    document.print_(writer)
    buffer.close()
    return bytes(buffer.data().data())

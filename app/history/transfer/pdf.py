"""A chat as a PDF, laid out by Qt."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QBuffer, QIODevice, QMarginsF, QSizeF
from PySide6.QtGui import QPageLayout, QPageSize, QPdfWriter, QTextDocument

from app.history.records import Chat, StoredMessage
from app.history.transfer.html import to_paper

_DOTS, _PIXELS = 300, 96
"""Of an inch: those of the page, and of the layout, as CSS counts them."""
_MARGIN_MM = 18.0


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
    document.setHtml(to_paper(chat, path))
    document.setPageSize(QSizeF(writer.width(), writer.height()) * (_PIXELS / _DOTS))
    document.print_(writer)
    buffer.close()
    return bytes(buffer.data().data())

"""What tests of the export and of the import share."""

from __future__ import annotations

from PySide6.QtCore import QBuffer
from PySide6.QtGui import QImage


def picture(width: int = 4) -> bytes:
    """A PNG."""
    image = QImage(width, 4, QImage.Format.Format_RGB32)
    image.fill(0x336699)
    buffer = QBuffer()
    image.save(buffer, "PNG")
    return bytes(buffer.data().data())

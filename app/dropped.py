"""Files that are dropped on a part of the window, or pasted there."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QDropEvent


def files_in(source: QMimeData) -> list[Path]:
    """The files of a drop or of the clipboard; none where an address is not of this machine."""
    urls = source.urls()
    return [Path(url.toLocalFile()) for url in urls] if urls and all(url.isLocalFile() for url in urls) else []


def accept_copy(event: QDropEvent) -> None:
    """Accept what is dragged as a copy, also with Shift: who is told that it was moved deletes the file."""
    event.setDropAction(Qt.DropAction.CopyAction)
    event.accept()

"""The part of Settings about GPU packs."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.gpu.card import Buttons, ProgressBar
from app.gpu.words import CardContent
from app.language import tr
from app.theme.widgets import caption, fill, named, say
from app.words import size
from engine.protocol import PackStatus


class PackSection(QWidget):
    """``acted`` carries a button's key; ``seen`` says that somebody looks, so that the state should be fresh."""

    acted = Signal(str)
    seen = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        head = named(QLabel(tr("GPU pack")), role="section")
        head.setContentsMargins(0, 16, 0, 0)
        self.title = named(QLabel(), "gpu.section.title")
        self.caption = caption(name="gpu.section.caption")
        self.bar = ProgressBar(tr("Progress of the GPU pack, in Settings"))
        self.buttons = Buttons("gpu.section")
        self.buttons.pressed.connect(self.acted)
        self.folder = caption(name="gpu.section.folder")
        self.open = QPushButton(tr("Open folder"))
        self.open.setAccessibleName(tr("Open the folder of the GPU pack"))
        self.open.clicked.connect(self._open_folder)
        self.old = caption(name="gpu.section.old")
        self.remove_old = QPushButton(tr("Remove them"))
        named(self.remove_old, "gpu.section.remove_old", title=tr("Remove the GPU packs of earlier versions"))
        self.remove_old.clicked.connect(lambda: self.acted.emit("remove_old"))
        column = fill(QVBoxLayout(self), head, _line(self._words(), self.buttons), self.bar, margins=0, spacing=10)
        self._place = _holder(_named(tr("Folder"), self.folder), self.open)
        self._earlier = _holder(_named(tr("Packs of earlier versions"), self.old), self.remove_old)
        fill(column, self._place, self._earlier)
        self.bar.hide()

    def show_content(self, content: CardContent, status: PackStatus | None) -> None:
        self.title.setText(content.title)
        say(self.caption, content.caption, "bad" if content.tone == "bad" else "caption")
        self.bar.show_share(content.fraction)
        self.buttons.show_buttons(content.buttons)
        there = status is not None and status.state != "none" and bool(status.folder)
        self._place.setVisible(there)
        old = status.others if status is not None else []
        self._earlier.setVisible(bool(old))
        self.remove_old.setEnabled(content.fraction is None)
        if status is not None:
            taken = f" · {size(status.disk_bytes)}" if status.state == "installed" and status.disk_bytes else ""
            self.folder.setText(status.folder + taken)
            self.open.setProperty("folder", status.folder)
            self.old.setText("\n".join(old))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.seen.emit()

    def _words(self) -> QVBoxLayout:
        return fill(QVBoxLayout(), self.title, self.caption, spacing=2)

    def _open_folder(self) -> None:
        folder = Path(str(self.open.property("folder")))
        near = next((place for place in (folder, *folder.parents) if place.is_dir()), folder)
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(near)))


def _named(name: str, label: QLabel) -> QVBoxLayout:
    return fill(QVBoxLayout(), QLabel(name), label, spacing=2)


def _line(words: QVBoxLayout, control: QWidget) -> QHBoxLayout:
    return fill(
        QHBoxLayout(), (words, 1), (control, 0, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), spacing=16
    )


def _holder(words: QVBoxLayout, control: QWidget) -> QWidget:
    holder = QWidget()
    line = _line(words, control)
    line.setContentsMargins(0, 0, 0, 0)
    holder.setLayout(line)
    return holder

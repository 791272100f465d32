"""The dialog about the program: its version, and the licences of everything it is made of."""

from __future__ import annotations

from pathlib import Path

import msgspec
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from app import version
from app.help import licences
from app.help.licences import Bundled
from app.language import tr
from app.theme.room import room_of
from app.theme.theme import Theme
from app.theme.widgets import caption, fill, named, tip

SIZE = QSize(980, 640)
"""A licence's lines of eighty characters fit next to the list."""
_LIST_WIDTH = 260


class AboutDialog(QDialog):
    """Reads the list when it is first shown, and a text when its part is chosen."""

    def __init__(self, folder: Path, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = folder
        self._theme = theme
        self._entries: list[Bundled] | None = None
        self._found: list[Bundled] = []
        named(self, "about", windowTitle=tr("About Kvasir"))
        wanted = SIZE * max(1.0, theme.scale)
        self.resize(wanted.boundedTo(room_of(self)))
        self.title = named(QLabel(), role="title")
        self.summary = caption()
        self.search_field = named(
            QLineEdit(placeholderText=tr("Search by name or licence"), clearButtonEnabled=True),
            title=tr("Search the licences"),
        )
        self.search_field.textChanged.connect(self._search)
        self.list = named(QListWidget(), title=tr("Parts that Kvasir is made of"))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.currentRowChanged.connect(self._show)
        self.name = named(QLabel(textInteractionFlags=Qt.TextInteractionFlag.TextSelectableByMouse), role="figure")
        self.about = caption()
        self.text = QPlainTextEdit(readOnly=True)
        self.text.document().setDocumentMargin(0)
        self.text.setAccessibleName(tr("Text of the licence"))
        self._lay_out()
        self._recolour()
        theme.changed.connect(self._recolour)

    @property
    def found(self) -> list[Bundled]:
        """Entries that the search shows."""
        return self._found

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._entries is None:
            self._load()
            self._search("")

    def _lay_out(self) -> None:
        side = fill(QVBoxLayout(), self.search_field, (self.list, 1), spacing=8)
        self._side = holder = QWidget()
        holder.setLayout(side)
        side.setContentsMargins(0, 0, 0, 0)
        right = fill(QVBoxLayout(), self.name, self.about, spacing=4)
        right.addSpacing(4)
        right.addWidget(self.text, 1)
        row = fill(QHBoxLayout(), holder, (right, 1), spacing=24)
        column = fill(QVBoxLayout(self), self.title, self.summary, margins=(24, 16, 24, 24), spacing=4)
        column.addSpacing(12)
        column.addLayout(row, 1)

    def _load(self) -> None:
        try:
            self._entries = licences.load(self._folder)
        except (OSError, msgspec.MsgspecError) as error:
            self._entries = []
            self.summary.setText(
                tr(
                    "The list of licences in {folder} cannot be read ({why}). Install Kvasir again.",
                    folder=self._folder,
                    why=error,
                )
            )
        else:
            made = tr("Made of {n} parts by many people.", n=len(self._entries))
            self.summary.setText(f"{made} {tr('Choose one to read where it comes from and under which terms.')}")
        own = next((entry.version for entry in self._entries if entry.name.lower() == "kvasir"), "")
        self.title.setText(f"Kvasir {own or version.installed()}")

    def _search(self, words: str) -> None:
        self._found = licences.search(self._entries or [], words)
        self.list.blockSignals(True)
        self.list.clear()
        for entry in self._found:
            item = QListWidgetItem(" ".join(part for part in (entry.name, entry.version) if part))
            item.setToolTip(tip(entry.licence))
            self.list.addItem(item)
        self.list.blockSignals(False)
        if self._found:
            self.list.setCurrentRow(0)
        self._show(0)

    def _show(self, row: int) -> None:
        if not 0 <= row < len(self._found):
            self.name.setText("")
            self.about.setText(tr("No part has these words in its name or licence.") if self._entries else "")
            self.text.setPlainText("")
            return
        entry = self._found[row]
        self.name.setText(entry.name)
        words = (
            tr("Version {version}", version=entry.version) if entry.version else "",
            entry.licence or tr("Licence not named"),
            entry.home,
        )
        self.about.setText(" · ".join(word for word in words if word))
        self.text.setPlainText(licences.text(entry))

    def _recolour(self) -> None:
        self.text.setFont(self._theme.mono_font(12))
        self._side.setFixedWidth(max(_LIST_WIDTH, self._theme.px(_LIST_WIDTH)))

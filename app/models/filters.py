"""Filters that narrow a search on the hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from PySide6.QtCore import Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QMenu, QPushButton, QWidget

from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import Toggle, fill, menu_text, named, tip
from engine.protocol import ModelFormat
from engine.protocol.operations import SearchModels

SIZES = (
    (tr("any size"), ""),
    (tr("up to 2B"), "-2B"),
    (tr("2B to 5B"), "2B-5B"),
    (tr("5B to 10B"), "5B-10B"),
    (tr("10B to 20B"), "10B-20B"),
    (tr("20B to 40B"), "20B-40B"),
    (tr("over 40B"), "40B-"),
)
LICENCES = (
    (tr("any licence"), ""),
    *((name, name) for name in ("apache-2.0", "mit", "gemma", "llama3.1", "llama3.2", "llama3.3", "other")),
)
"""Licences that models in use have most, as the hub writes them."""


class FilterButton(QPushButton):
    """A button that names what is chosen, with a menu of all. ``options``: a title and a value each."""

    changed = Signal()

    def __init__(self, name: str, place: str, options: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        named(self, place, kind="choice")
        self._name, self.value = name, ""
        menu = QMenu(self)
        group = QActionGroup(self)
        for title, value in options:
            action = menu.addAction(menu_text(title))
            action.setCheckable(True)
            action.setData(value)
            group.addAction(action)
        group.triggered.connect(lambda action: self._on_chosen(action.text(), action.data()))
        self.setMenu(menu)
        group.actions()[0].setChecked(True)
        self._show(options[0][0])

    def _on_chosen(self, title: str, value: str) -> None:
        self.value = value
        self._show(title)
        self.changed.emit()

    def _show(self, title: str) -> None:
        self.setText(f"{title} ▾")
        self.setAccessibleName(f"{self._name}: {title}")


class Filters(QWidget):
    """``changed``: another one was chosen."""

    changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.sizes = FilterButton(tr("Parameters"), "models.filter.size", SIZES)
        self.licence = FilterButton(tr("Licence"), "models.filter.licence", LICENCES)
        self.author = QLineEdit()
        named(self.author, "models.filter.author", title=tr("Publisher"))
        named(self.author, placeholderText=tr("Publisher, e.g. Qwen"), clearButtonEnabled=True)
        self.fits = named(Toggle(theme), "models.filter.fits", title=tr("Fits this machine"))
        fits = named(QLabel(tr("fits this machine")), role="caption")
        for widget in (self.fits, fits):
            widget.setToolTip(tip(tr("Only models that fit into what is free now when they are packed in 4 bits.")))
        fill(QHBoxLayout(self), self.sizes, self.licence, (self.author, 1), fits, self.fits, margins=0, spacing=8)
        self.sizes.changed.connect(self.changed)
        self.licence.changed.connect(self.changed)
        self.author.returnPressed.connect(self.changed)
        self.fits.toggled.connect(lambda _: self.changed.emit())

    def narrowed(self, text: str, format: str) -> SearchModels:
        """The search for ``text`` in a ``format``, "" for any, with what is chosen."""
        return SearchModels(
            text=text,
            format=cast("ModelFormat", format),
            author=self.author.text().strip(),
            licence=self.licence.value,
            size=self.sizes.value,
            fits=self.fits.isChecked(),
        )

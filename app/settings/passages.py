"""Choice of the embedding model by which passages of documents are found: a button with the present one, and a menu."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Signal

from app.documents.meaning import AUTO, OFF, chosen, models_of
from app.language import tr
from app.theme.menus import MenuButton
from app.theme.widgets import named
from app.words import size
from engine.protocol import StoredModel

NONE_HERE = tr("Off: no embedding model is here")
WIDTH = 260
"""Pixels that it takes at least."""


class EmbeddingChoice(MenuButton):
    """``chosen`` carries a value of the setting; ``find_asked``: the person wants a model that is not here."""

    chosen = Signal(str)
    find_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        named(self, "settings.passages")
        self.setMinimumWidth(WIDTH)
        self._stored: Sequence[StoredModel] = ()
        self._value = AUTO
        self._show()

    def offer_models(self, stored: Sequence[StoredModel]) -> None:
        """Offer the embedding models among those on this computer."""
        self._stored = stored
        self._show()

    def choose(self, value: str) -> None:
        """Show a value of the setting."""
        self._value = value
        self._show()

    def _show(self) -> None:
        models, used = models_of(self._stored), chosen(self._value, self._stored)
        self.clear()
        self._add(tr("Off"), OFF, not used)
        for each in models:
            title = tr("{name}, {size}", name=each.name, size=size(each.bytes))
            self._add(title, each.path, each.path == used)
        self.separate()
        self.offer(tr("Find an embedding model…"), "settings.passages.find", self.find_asked.emit)
        here = next((each.name for each in models if each.path == used), "")
        if here:
            title = here
        elif used:
            title = tr("{name} (not here)", name=Path(used).name)
        else:
            title = tr("Off") if models else NONE_HERE
        self.setAccessibleName(tr("Passages by meaning: {name}", name=title))
        self.show_title(title)

    def _add(self, title: str, value: str, checked: bool) -> None:
        self.offer(title, f"settings.passages.{value}", lambda: self.chosen.emit(value), checked)

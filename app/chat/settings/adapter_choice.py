"""Choice of the LoRA adapter that answers in a chat: a button with the present one, and a menu of those loaded."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.language import figure, tr
from app.theme.menus import MenuButton
from app.theme.widgets import named
from engine.protocol import AdapterCard

NONE = tr("None (the model alone)")
LOAD = tr("Load from a folder…")
HELP = tr("Low-rank weights (LoRA, in PEFT's format)\nthat are added to the model's own for the answers of this chat.")


def described(card: AdapterCard) -> str:
    """Describe the adapter, such as "pirate: rank 16, 84 MB"."""
    size = f"{figure(card.bytes / 1e6, ',.0f')} MB" if card.bytes >= 1e6 else f"{figure(card.bytes / 1e3, ',.0f')} kB"
    return tr("{name}: rank {rank}, {size}", name=card.name, rank=card.rank, size=size)


class AdapterChoice(MenuButton):
    """``chosen`` carries the name of an adapter, "" for the model alone; ``load_asked`` asks for a new one, and
    ``unload_asked`` wants the one of that name to go."""

    chosen = Signal(str)
    load_asked = Signal()
    unload_asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "adapter-choice", tooltip=HELP)
        self.show_for([], "", False)

    def show_for(self, cards: Sequence[AdapterCard], name: str, model: bool) -> None:
        """Offer the adapters in memory, and the chat's own ``name`` though it is not; ``model``: one is loaded."""
        self.clear()
        self._add(NONE, "", not name)
        for card in cards:
            self._add(described(card), card.name, card.name == name)
        there = any(card.name == name for card in cards)
        title = name or NONE
        if name and not there:
            title = tr("{name} (not loaded)", name=name)
            self._add(title, name, True)
        self.separate()
        self.offer(LOAD, "adapter.load", self.load_asked.emit).setEnabled(model)
        if there:
            self.offer(tr("Unload {name}", name=name), "adapter.unload", lambda: self.unload_asked.emit(name))
        self.setAccessibleName(tr("Adapter: {name}", name=title))
        self.show_title(title)

    def _add(self, title: str, name: str, checked: bool) -> None:
        self.offer(title, f"adapter.{name or 'none'}", lambda: self.chosen.emit(name), checked)

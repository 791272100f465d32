"""Which LoRA adapter answers in a chat: a button with the present one, and a menu of those that are loaded."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup, QResizeEvent
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QWidget

from engine.protocol import AdapterCard

NONE = "None (the model alone)"
LOAD = "Load from a folder…"
HELP = "Low-rank weights (LoRA, in PEFT's format)\nthat are added to the model's own for the answers of this chat."
_ARROW = " ▾"
_EDGES_PX = 24


def described(card: AdapterCard) -> str:
    """For example "pirate: rank 16, 84 MB"."""
    size = f"{card.bytes / 1e6:,.0f} MB" if card.bytes >= 1e6 else f"{card.bytes / 1e3:,.0f} kB"
    return f"{card.name}: rank {card.rank}, {size}"


class AdapterChoice(QPushButton):
    """``chosen`` carries the name of an adapter, "" for the model alone; ``load_asked`` asks for a new one, and
    ``unload_asked`` wants the one of that name to go."""

    chosen = Signal(str)
    load_asked = Signal()
    unload_asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("adapter-choice")
        self.setProperty("kind", "choice")
        self.setToolTip(HELP)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._title = NONE
        self._menu = QMenu(self)
        self._group = QActionGroup(self)
        self._group.triggered.connect(lambda action: self.chosen.emit(action.data()))
        self.setMenu(self._menu)
        self.show_for([], "", False)

    def show_for(self, cards: Sequence[AdapterCard], name: str, model: bool) -> None:
        """Offer the adapters in memory, and the chat's own ``name`` though it is not; ``model``: one is loaded."""
        for action in self._group.actions():
            self._group.removeAction(action)
        self._menu.clear()
        self._add(NONE, "", not name)
        for card in cards:
            self._add(described(card), card.name, card.name == name)
        there = any(card.name == name for card in cards)
        self._title = name or NONE
        if name and not there:
            self._title = f"{name} (not loaded)"
            self._add(self._title, name, True)
        self._menu.addSeparator()
        load = self._menu.addAction(LOAD)
        load.setObjectName("adapter.load")
        load.setEnabled(model)
        load.triggered.connect(lambda: self.load_asked.emit())
        if there:
            unload = self._menu.addAction(f"Unload {name}")
            unload.setObjectName("adapter.unload")
            unload.triggered.connect(lambda: self.unload_asked.emit(name))
        self.setAccessibleName(f"Adapter: {self._title}")
        self._fit()

    def _add(self, title: str, name: str, checked: bool) -> QAction:
        action = self._menu.addAction(title.replace("&", "&&"))
        action.setObjectName(f"adapter.{name or 'none'}")
        action.setData(name)
        action.setCheckable(True)
        action.setChecked(checked)
        self._group.addAction(action)
        return action

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def _fit(self) -> None:
        room = self.width() - _EDGES_PX - self.fontMetrics().horizontalAdvance(_ARROW)
        shown = self.fontMetrics().elidedText(self._title, Qt.TextElideMode.ElideRight, room)
        self.setText(shown.replace("&", "&&") + _ARROW)

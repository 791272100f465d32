"""The cache, seen: what lies at the window's foot in place of the plots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.cache.hues import ChatHues
from app.theme.theme import Theme
from engine.protocol import Telemetry

if TYPE_CHECKING:
    from app.cache.panes import CachePanes


class CacheView(QWidget):
    """Empty until it is first shown, so that numpy stays out of the window's start.

    ``watched`` tells whether somebody can see it; maps that come while nobody does are not looked at.
    """

    watched = Signal(bool)
    describe = Signal(int)
    chosen = Signal(str)

    def __init__(self, theme: Theme, hues: ChatHues, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._hues = theme, hues
        self._chat = ""
        self._frame: Telemetry | None = None
        self.name: Callable[[str], str] = lambda chat: chat
        """The title of a chat, for people."""
        self.panes: CachePanes | None = None
        self.setObjectName("cache")
        self.setAccessibleName("Cache")
        self.setProperty("surface", "panel")
        self.setProperty("edge", "top")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)

    def show_chat(self, chat: str) -> None:
        """Which chat is on screen, "" for a new one."""
        self._chat = chat
        if self.panes is not None:
            self.panes.show_chat(chat)

    def add(self, frame: Telemetry) -> None:
        self._frame = frame
        if self.panes is not None and self.isVisible():
            self.panes.figures.show_frame(frame)
            self.panes.tree.grow_older()

    def stop(self) -> None:
        if self.panes is not None:
            self.panes.stop()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.panes is None:
            from app.cache.panes import CachePanes

            self.panes = CachePanes(self._theme, self._hues, lambda chat: self.name(chat), self)
            self.panes.describe.connect(self.describe)
            self.panes.chosen.connect(self.chosen)
            self.panes.show_chat(self._chat)
            self._row.addWidget(self.panes)
        if self._frame is not None:
            self.panes.figures.show_frame(self._frame)
        self.watched.emit(True)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.stop()
        self.watched.emit(False)

"""The cache, seen: what lies at the window's foot in place of the plots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.charts.hues import ChatHues
from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import fill, named
from engine.protocol import PageDescribed, RadixTree, Telemetry

if TYPE_CHECKING:
    from app.cache.panes import CachePanes
    from app.charts.page_states import PageStates


class CacheView(QWidget):
    """Empty until it is first shown, so that numpy stays out of the window's start.

    ``watched`` tells whether somebody can see it. The engine sends a map when it changes: the last one of each kind is
    kept, and shown once somebody looks.
    """

    watched = Signal(bool)
    describe = Signal(int)
    chosen = Signal(str)

    def __init__(self, theme: Theme, hues: ChatHues, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._hues = theme, hues
        self._chat = ""
        self._frame: Telemetry | None = None
        self._pages: PageStates | None = None
        self._tree: RadixTree | None = None
        self.name: Callable[[str], str] = lambda chat: chat
        """The title of a chat, for people."""
        self.panes: CachePanes | None = None
        named(self, "cache", title=tr("Cache"), surface="panel", edge="top")
        self._row = fill(QHBoxLayout(self), margins=0)

    def show_chat(self, chat: str) -> None:
        """Set the chat that is on screen, "" for a new one."""
        self._chat = chat
        if self.panes is not None:
            self.panes.show_chat(chat)

    def add(self, frame: Telemetry) -> None:
        self._frame = frame
        if self.panes is not None and self.isVisible():
            self.panes.figures.show_frame(frame)
            self.panes.tree.grow_older()

    def show_pages(self, pages: PageStates) -> None:
        self._pages = pages
        if self.panes is not None and self.isVisible():
            self.panes.show_pages(pages)

    def show_tree(self, tree: RadixTree) -> None:
        self._tree = tree
        if self.panes is not None and self.isVisible():
            self.panes.show_tree(tree)

    def show_described(self, message: PageDescribed) -> None:
        """Say what a page holds, if it is still pointed at."""
        if self.panes is not None:
            self.panes.show_described(message)

    def forget_maps(self) -> None:
        """They are of a pool that is gone."""
        self._pages = self._tree = None

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
        if self._pages is not None:
            self.panes.show_pages(self._pages)
        if self._tree is not None:
            self.panes.show_tree(self._tree)
        self.watched.emit(True)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.stop()
        self.watched.emit(False)

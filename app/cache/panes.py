"""Page map, prefix tree and figures side by side, and the card that says what is pointed at."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, QRect, Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.cache import words
from app.cache.card import HoverCard
from app.cache.figures import Figures
from app.cache.legend import StateLegend, chats_text
from app.cache.page_map import PageMapView
from app.cache.tree_model import TreeRow
from app.cache.tree_view import TreeView
from app.charts.figure import Figure
from app.charts.hues import ChatHues
from app.charts.page_states import PageStates
from app.language import tr
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, fill, named, say
from engine.protocol import PageDescribed, RadixTree

DESCRIBE_MS = 120
"""Milliseconds the mouse rests on a page before the engine is asked what it holds."""


class CachePanes(QWidget):
    """``describe`` asks what a page holds, ``chosen`` carries the chat whose page or run was clicked."""

    describe = Signal(int)
    chosen = Signal(str)

    def __init__(self, theme: Theme, hues: ChatHues, name: Callable[[str], str], parent: QWidget) -> None:
        super().__init__(parent)
        self._theme, self._hues, self._name = theme, hues, name
        self._chat = ""
        self.map = PageMapView(theme, hues, self)
        self.tree = TreeView(theme, hues, self)
        self.figures = Figures(self)
        self.states = StateLegend(theme, self)
        self.chats = named(QLabel(self, textFormat=Qt.TextFormat.RichText, wordWrap=True), role="tiny")
        self.chats.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.card = HoverCard(self.window())
        self._pages_figure, self._tree_figure = Figure("–", "figure"), Figure("–", "figure")
        self._rest = named(QTimer(self, singleShot=True, interval=DESCRIBE_MS), "describe-page")
        self._rest.timeout.connect(lambda: self.describe.emit(self.map.body.at))
        self._lay_out()
        self.map.body.pointed.connect(self._on_page)
        self.map.body.chosen.connect(self._choose_page)
        self.tree.pointed.connect(self._on_run)
        self.tree.chosen.connect(self.chosen)
        theme.changed.connect(self._recolour)

    def show_pages(self, pages: PageStates) -> None:
        self._ask_again(pages)
        self.map.show_pages(pages)
        self._pages_figure.short = words.used(pages)
        self._pages_figure.setText(words.in_use(pages))
        elsewhere = words.elsewhere(pages)
        owned = chats_text(pages.owned(), self._chat, self._hues, self._theme, self._name)
        said = " &nbsp; ".join(part for part in (owned, elsewhere) if part)
        if said != self.chats.text():
            say(self.chats, said)

    def show_tree(self, tree: RadixTree) -> None:
        self.tree.show_tree(tree)
        self._tree_figure.setText(words.tree(tree))

    def show_chat(self, chat: str) -> None:
        """The chat on screen."""
        self._chat = chat
        self.tree.show_chat(chat)

    def show_described(self, message: PageDescribed) -> None:
        """Say what a page holds, if it is still pointed at."""
        if message.page != self.map.body.at:
            return
        title = ", ".join(self._name(chat) for chat in message.chats)
        self.card.say(title, words.page(message), _quoted(message.text), self._in_window(self.map, message.page))

    def stop(self) -> None:
        self._rest.stop()
        self.map.stop()
        self.card.hide()

    def _ask_again(self, pages: PageStates) -> None:
        """The page under the mouse is in another state: what its card says may no longer hold."""
        at, before = self.map.body.at, self.map.pages
        if before is not None and 0 <= at < min(before.total, pages.total) and before.states[at] != pages.states[at]:
            self._rest.start()

    def _on_page(self, page: int) -> None:
        self.card.hide()
        if page >= 0:
            self._rest.start()
        else:
            self._rest.stop()

    def _choose_page(self, page: int) -> None:
        pages = self.map.pages
        owner = pages.owner(page) if pages is not None and page < pages.total else None
        if owner is not None and owner.chat:
            self.chosen.emit(owner.chat)

    def _on_run(self, row: TreeRow | None) -> None:
        if row is None:
            self.card.hide()
            return
        line = ", ".join([words.token_count(row.node.tokens), *words.facts(row.node)])
        place = self.tree.place(row).translated(self.tree.mapTo(self.window(), QPoint()))
        self.card.say(self._name(row.node.chat) if row.node.chat else "", line, _quoted(row.node.text), place)

    def _in_window(self, view: PageMapView, page: int) -> QRect:
        return view.place(page).translated(view.mapTo(self.window(), QPoint()))

    def _lay_out(self) -> None:
        row = fill(QHBoxLayout(self), margins=0, spacing=0)
        left = _pane("Page map", tr("Page map"), self._pages_figure)  # not shown
        fill(left, (self.map, 1), self.states, self.chats)
        middle = _pane("Prefix tree", tr("Prefix tree"), self._tree_figure)  # not shown
        middle.addWidget(self.tree, 1)
        right = _pane("", tr("Cache"), None)
        area = scrolling(self.figures)
        bar = area.verticalScrollBar().sizeHint().width()
        self.figures.widened.connect(lambda wide: area.setMinimumWidth(wide + bar))
        fill(right, (area, 1))
        for index, (column, share) in enumerate(((left, 42), (middle, 38), (right, 20))):
            if index:
                divider = named(QFrame(), edge="left")
                divider.setFixedWidth(1)
                row.addWidget(divider)
            row.addLayout(column, share)

    def _recolour(self) -> None:
        self.map.recolour()
        self.states.update()
        if self.map.pages is not None:
            self.show_pages(self.map.pages)


def _pane(name: str, title: str, figure: Figure | None) -> QVBoxLayout:
    column = fill(QVBoxLayout(), margins=(14, 10, 14, 10), spacing=8)
    head = QHBoxLayout()
    head.addWidget(ElidedLabel(title, "caption"), 1)
    if figure is not None:
        named(figure, f"cache.{name}")
        head.addWidget(figure)
    column.addLayout(head)
    return column


def _quoted(text: str) -> str:
    short = words.readable(text)
    return tr("“{text}”", text=f"{short[:220]}{'…' if len(short) > 220 else ''}") if short else ""

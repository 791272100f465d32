"""Connects the view of the cache and the plots to the engine and the chats. No widget is made here."""

from __future__ import annotations

import logging
from collections.abc import Callable

from PySide6.QtCore import QObject

from app.cache import words
from app.cache.forget import Forgetter
from app.cache.view import CacheView
from app.chat.page import ChatPage
from app.history.sidebar import Sidebar
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from app.link.topics import Topics
from app.plots.strip import PlotStrip
from engine import protocol

log = logging.getLogger(__name__)


class CacheWiring(QObject):
    """Lives as long as the window. ``open_chat`` brings a chat on screen."""

    def __init__(
        self,
        link: EngineLink,
        view: CacheView,
        plots: PlotStrip,
        chat: ChatPage,
        sidebar: Sidebar,
        history: HistoryStore,
        open_chat: Callable[[str], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._view, self._plots, self._history = link, view, plots, history
        self._open_chat = open_chat
        self._titles: dict[str, str] = {}
        self._asked = 0
        self.topics = Topics(link, self)
        self.forgetter = Forgetter(link, history, chat.answers, self)
        sidebar.deleted.connect(self.forgetter.forget)
        view.name = self._title
        view.watched.connect(lambda on: self.topics.watch("cache", frozenset({"pages", "tree"} if on else ())))
        plots.watched.connect(lambda on: self.topics.watch("plots", frozenset({"pages"} if on else ())))
        view.describe.connect(self._describe)
        view.chosen.connect(self._open)
        plots.chat_requested.connect(self._open)
        chat.chat_changed.connect(view.show_chat)
        history.changed.connect(self._on_history_changed)
        link.telemetry.connect(plots.add)
        link.telemetry.connect(view.add)
        link.page_map.connect(self._on_pages)
        link.radix_tree.connect(view.show_tree)
        link.page_described.connect(self._on_described)
        link.state_changed.connect(self._on_state)
        for signal in (link.unloaded, link.welcomed):
            signal.connect(self._on_other_pool)

    def close_down(self) -> None:
        """Before the program ends."""
        self.topics.stop()
        self._view.stop()

    def _on_pages(self, message: protocol.PageMap) -> None:
        from app.charts.page_states import decode  # numpy, which the plots have brought by now

        try:
            pages = decode(message)
        except ValueError as error:
            log.warning("%s", error)
            return
        self._plots.show_map(pages)
        self._view.show_pages(pages)

    def _describe(self, page: int) -> None:
        if self._link.state is LinkState.CONNECTED:
            self._asked += 1
            self._link.send(protocol.DescribePage(id=f"page-{self._asked}", page=page))

    def _on_described(self, message: protocol.PageDescribed) -> None:
        if message.id == f"page-{self._asked}":
            self._view.show_described(message)

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED:
            self._plots.end()
            self._on_other_pool()

    def _on_other_pool(self, *_: object) -> None:
        self._view.forget_maps()
        self._plots.forget_map()

    def _open(self, chat: str) -> None:
        """A click on a page or a run: its chat, unless it is another program's or deleted."""
        if self._history.chat(chat) is not None:
            self._open_chat(chat)

    def _title(self, chat: str) -> str:
        """The title of a chat of ours, asked for once."""
        if chat not in self._titles:
            found = self._history.chat(chat)
            self._titles[chat] = found.title if found is not None else words.UNKNOWN_CHAT
        return self._titles[chat]

    def _on_history_changed(self, chat: str) -> None:
        self._titles.pop(chat, None)

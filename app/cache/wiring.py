"""Connects the view of the cache to the engine, the chats and the panel. No widget is made here."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.cache import words
from app.cache.forget import Forgetter
from app.chat.page import ChatPage
from app.history.sidebar import Sidebar
from app.history.store import HistoryStore
from app.link.link import EngineLink, LinkState
from app.link.topics import Topics
from app.panel.panel import BUSY
from app.window import MainWindow
from engine import protocol

if TYPE_CHECKING:
    from app.cache.pages import Pages

log = logging.getLogger(__name__)

NO_CHAT = "Ask something first: the cost is measured on what this chat holds."
_COST = "cost"


class CacheWiring(QObject):
    """Lives as long as the window."""

    def __init__(
        self, window: MainWindow, chat: ChatPage, sidebar: Sidebar, link: EngineLink, history: HistoryStore
    ) -> None:
        super().__init__(window)
        self._window, self._chat, self._link, self._history = window, chat, link, history
        self._view, self._plots, self._panel = window.cache, window.plots, window.panel
        self._pages: Pages | None = None
        self._tree: protocol.RadixTree | None = None
        self._titles: dict[str, str] = {}
        self._asked = 0
        self._cost: tuple[str, str] | None = None
        """(the id of the measurement that runs, the key of its switch)."""
        self.topics = Topics(link, self)
        self.forgetter = Forgetter(link, history, chat.answers, self)
        sidebar.deleted.connect(self.forgetter.forget)
        self._connect_view()
        self._connect_costs()
        for signal in (link.unloaded, link.welcomed):
            signal.connect(self._on_other_pool)

    def close_down(self) -> None:
        """Before the program ends."""
        self.topics.stop()
        self._view.stop()

    # --- maps ------------------------------------------------------------------------------------------------------

    def _connect_view(self) -> None:
        link, view = self._link, self._view
        view.name = self._title
        view.watched.connect(self._on_watched)
        self._plots.watched.connect(lambda on: self.topics.watch("plots", frozenset({"pages"} if on else ())))
        view.describe.connect(self._describe)
        view.chosen.connect(self._open)
        link.page_map.connect(self._on_pages)
        link.radix_tree.connect(self._on_tree)
        link.page_described.connect(self._on_described)
        self._chat.chat_changed.connect(view.show_chat)
        self._history.changed.connect(self._on_history_changed)

    def _on_pages(self, message: protocol.PageMap) -> None:
        from app.cache.pages import decode  # numpy, which the plots have brought by now

        try:
            pages = decode(message)
        except ValueError as error:
            log.warning("%s", error)
            return
        self._pages = pages
        self._plots.show_map(pages)
        if self._view.panes is not None and self._view.isVisible():
            self._view.panes.show_pages(pages)

    def _on_watched(self, on: bool) -> None:
        """The engine sends a map when it changes: until then the last one stands."""
        self.topics.watch("cache", frozenset({"pages", "tree"} if on else ()))
        if on and self._view.panes is not None:
            if self._pages is not None:
                self._view.panes.show_pages(self._pages)
            if self._tree is not None:
                self._view.panes.show_tree(self._tree)

    def _on_tree(self, message: protocol.RadixTree) -> None:
        self._tree = message
        if self._view.panes is not None and self._view.isVisible():
            self._view.panes.show_tree(message)

    def _describe(self, page: int) -> None:
        if self._link.state is LinkState.CONNECTED:
            self._asked += 1
            self._link.send(protocol.DescribePage(id=f"page-{self._asked}", page=page))

    def _on_described(self, message: protocol.PageDescribed) -> None:
        if message.id == f"page-{self._asked}" and self._view.panes is not None:
            self._view.panes.show_described(message)

    def _on_other_pool(self, *_: object) -> None:
        self._pages = self._tree = None
        self._plots.forget_map()

    def _open(self, chat: str) -> None:
        """A click on a page or a run: its chat, unless it is another program's or deleted."""
        if self._history.chat(chat) is not None:
            self._window.show_page(self._window.CHAT)
            self._chat.open_chat(chat)

    def _title(self, chat: str) -> str:
        """The title of a chat of ours, asked for once."""
        if chat not in self._titles:
            found = self._history.chat(chat)
            self._titles[chat] = found.title if found is not None else words.UNKNOWN_CHAT
        return self._titles[chat]

    def _on_history_changed(self, chat: str) -> None:
        self._titles.pop(chat, None)

    # --- what an approximation costs -------------------------------------------------------------------------------

    def _connect_costs(self) -> None:
        self._panel.cost_requested.connect(self._measure)
        self._link.cost.connect(self._on_cost)
        self._link.failed.connect(self._on_failed)
        self._link.state_changed.connect(self._on_state)
        self._chat.prompt_changed.connect(self._update_measurable)
        self._chat.chat_changed.connect(self._on_chat)
        for signal in (self._link.loaded, self._link.unloaded):
            signal.connect(self._update_measurable)
        self._update_measurable()

    def _measure(self, key: str) -> None:
        if self._cost is None and self._chat.chat_id:
            self._cost = (uuid.uuid4().hex, key)
            self._panel.show_cost_running(key, True)
            self._update_measurable()
            self._link.send(protocol.MeasureCost(id=self._cost[0], prompt="", chat=self._chat.chat_id))

    def _on_cost(self, message: protocol.Cost) -> None:
        if self._cost is not None and message.id == self._cost[0]:
            self._panel.show_cost(self._end(), message)

    def _on_failed(self, error: protocol.Error) -> None:
        if self._cost is not None and error.id == self._cost[0]:
            self._end()
            self._window.notice.say(error.message, "bad", topic=_COST)

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED and self._cost is not None:
            self._end()
        self._update_measurable()

    def _end(self) -> str:
        assert self._cost is not None
        key, self._cost = self._cost[1], None
        self._panel.show_cost_running(key, False)
        self._update_measurable()
        return key

    def _on_chat(self, _chat: str) -> None:
        self._panel.clear_costs()

    def _update_measurable(self, *_: object) -> None:
        if self._cost is not None:
            reason = BUSY
        elif self._link.state is not LinkState.CONNECTED or self._link.card is None:
            reason = "Load a model first."
        else:
            reason = NO_CHAT if self._chat.last_prompt() is None else ""
        self._panel.set_cost_measurable(reason)

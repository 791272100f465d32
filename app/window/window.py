"""The main window: top bar, the pages, side panels that collapse. It lays out what it is given and knows no engine."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QByteArray, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QKeyEvent, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QStackedWidget, QToolButton, QVBoxLayout, QWidget

from app.cache.view import CacheView
from app.chat.header import TINT_HELP
from app.chat.page import ChatPage
from app.commands.registry import Commands
from app.gpu.card import PackCard
from app.help.page import HelpPage
from app.history.sidebar import Sidebar
from app.language import tr
from app.models.page import ModelsPage
from app.models.selector import ModelSelector
from app.notice import NoticeBar, TakeTurns
from app.panel.panel import OptimisationPanel
from app.plots.strip import PlotStrip
from app.settings.appearance import USUAL, Appearance
from app.settings.page import SettingsPage
from app.theme.room import Scrolled, room_of
from app.theme.theme import Theme
from app.theme.widgets import fill, named
from app.window.dialogs import Dialogs
from app.window.folds import TOO_LOW, Folds
from app.window.presence import Presence
from app.window.regions import Regions
from app.window.sides import Sides
from app.window.simple import SimpleMode
from app.window.topbar import TopBar
from app.window.zoom import WheelZoom

MINIMUM = QSize(800, 600)
START = QSize(1440, 900)
_PAGES = ("show_chat", "show_models", "show_lab", "show_server", "show_help", "show_settings")
"""The commands that show the pages, in the order of the tabs."""
_UNWRITTEN = "unwritten"
"""Topic of the notice that settings could not be written."""


class MainWindow(QWidget):
    """``painted`` is emitted once, after the window has first been painted."""

    painted = Signal()
    quick_asked = Signal()
    """The person wants the quick chat."""
    left = Signal()
    """It was closed, and the program ends."""
    CHAT, MODELS, LAB, SERVER, HELP, SETTINGS = range(6)

    def __init__(
        self,
        *,
        selector: ModelSelector,
        sidebar: Sidebar,
        chat: ChatPage,
        panel: OptimisationPanel,
        plots: PlotStrip,
        cache: CacheView,
        models_page: ModelsPage,
        lab_page: QWidget,
        server_page: QWidget,
        help_page: HelpPage,
        settings_page: SettingsPage,
        appearance: Appearance,
        theme: Theme,
        log_file: Path,
    ) -> None:
        super().__init__()
        store = appearance.store
        self.sidebar, self.chat, self.panel, self.plots, self.cache = sidebar, chat, panel, plots, cache
        self.models_page, self.settings_page = models_page, settings_page
        # A plain QWidget paints the background of its style sheet only when told to.
        pages = (models_page, lab_page, server_page, help_page, settings_page)
        for page in (sidebar, chat, panel, plots, cache, *pages, self):
            page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._theme, self._appearance = theme, appearance
        self.commands = Commands(store, self)
        self.dialogs = Dialogs(self.commands, log_file, theme, self)
        self.presence = Presence(self)
        self._was_painted = False
        self.setWindowTitle("Kvasir")
        named(self, "window", surface="panel", acceptDrops=True)
        titles = [tr("Chat"), tr("Models"), tr("Lab"), tr("Server"), tr("Help"), tr("Settings")]
        self.bar = TopBar(titles, selector, theme)
        self.bar.page_chosen.connect(self.show_page)
        self.notice = NoticeBar(theme, "window.notice")
        self.gpu_card = PackCard()
        self._stack = QStackedWidget()
        self._pages: tuple[QWidget, ...] = (self._chat_page(), *pages)
        for each in self._pages:
            self._stack.addWidget(each if each is self._pages[self.CHAT] else Scrolled(each))
        fill(QVBoxLayout(self), self.bar, self.notice, self.gpu_card, (self._stack, 1), margins=0, spacing=0)
        self.simple = SimpleMode(store, self.notice)
        self.folds = Folds(self.bar, chat, self.sides, plots, cache, self.commands.keymap, store, theme, self)
        self.simple.changed.connect(self._fit_mode)
        help_page.shortcuts_requested.connect(self.dialogs.show_shortcuts)
        help_page.about_requested.connect(self.dialogs.show_about)
        help_page.log_requested.connect(self.dialogs.show_log)
        settings_page.shortcuts_requested.connect(self.dialogs.show_shortcuts)
        settings_page.log_requested.connect(self.dialogs.show_log)
        turns = TakeTurns(self.notice, chat.notice, lambda: self.page == self.CHAT)
        self._stack.currentChanged.connect(turns.settle)
        self._bind()
        self._fit_mode()
        self._restore()
        if store.notice:
            self.notice.say(store.notice, topic="settings")
        store.failed.connect(lambda sentence: self.notice.say(sentence, "bad", topic=_UNWRITTEN))
        store.recovered.connect(lambda: self.notice.clear(_UNWRITTEN))
        self.chat.focus_composer()  # one can type at once

    @property
    def page(self) -> int:
        return self._stack.currentIndex()

    def show_page(self, index: int) -> None:
        self._stack.setCurrentIndex(index)
        self.bar.choose(index, index == self.CHAT)
        if index == self.CHAT:
            self.chat.focus_composer()
        else:
            self._pages[index].setFocus()

    def open_chat(self, chat: str) -> None:
        self.show_page(self.CHAT)
        self.chat.open_chat(chat)

    def show_gpu_settings(self) -> None:
        self.show_page(self.SETTINGS)
        self.settings_page.show_gpu()

    def close_overlay(self) -> bool:
        """Hide what lies over the chat where room is short; whether anything did."""
        return self.sides.close_overlay()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_painted:
            self._was_painted = True
            QTimer.singleShot(0, self.painted.emit)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.folds.fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.findChild(WheelZoom) is None:  # there is a window of the desktop's from now on
            self.windowHandle().screenChanged.connect(self._fit_screen)
            WheelZoom(self.windowHandle(), self._appearance, self)
        self._fit_screen()

    def _fit_screen(self, *_: object) -> None:
        """A screen of few pixels, or one that shows everything larger, has less room than the window asks for."""
        self.setMinimumSize(MINIMUM.boundedTo(room_of(self)))

    def _fit_mode(self) -> None:
        """Simple mode leaves chats and models."""
        simple = self.simple.on
        self.bar.hide_parts((self.LAB, self.SERVER) if simple else (), ("plots", "cache", "panel") if simple else ())
        self.sides.hold_right(simple)
        self.chat.welcome.show_why(not simple)
        self._rule.setVisible(not simple)
        self.folds.fit()
        if simple and self.page in (self.LAB, self.SERVER):
            self.show_page(self.CHAT)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            if not self.close_overlay():
                self.chat.stop()
        else:
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """What is dropped next to the chat belongs to the message, too."""
        if self.page == self.CHAT:
            self.chat.dragEnterEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        self.chat.dropEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self.presence.allows():
            event.ignore()
            return
        self._appearance.store.update(geometry=bytes(self.saveGeometry().toBase64().data()).decode())
        super().closeEvent(event)
        self.left.emit()

    def _chat_page(self) -> QWidget:
        page = QWidget()
        column = fill(QVBoxLayout(page), margins=0, spacing=0)
        self.sides = Sides(self.sidebar, self.chat, self.panel, self._theme)
        fill(column, (self.sides, 1), self.cache)
        self._rule = named(QFrame(), edge="top")
        self._rule.setFixedHeight(1)
        fill(column, self._rule, self.plots)
        return page

    def show_why_fast(self) -> None:
        """The panel and the plots, which show what makes it fast."""
        self.simple.unless_hidden(self._unfold)()

    def _unfold(self) -> None:
        self.folds.right.setChecked(True)
        self.folds.charts.setChecked(True)

    def show_switch(self, key: str) -> bool:
        """Show a switch in the panel, wherever it stands there; whether there is such a switch now."""
        self.show_page(self.CHAT)
        self.folds.right.setChecked(True)
        return self.panel.reveal(key)

    def _attach(self) -> None:
        self.show_page(self.CHAT)
        self.chat.attach()

    def _bind(self) -> None:
        regions, zoom, whole = Regions(self._parts), self._appearance, self.simple.unless_hidden
        self.commands.give(
            {
                "new_chat": self._new_chat,
                "search": self._search,
                "find": self._find_in_chat,
                "find_next": lambda: self._find_in_chat(True),
                "find_previous": lambda: self._find_in_chat(False),
                "focus_composer": lambda: self.show_page(self.CHAT),
                "regenerate": self.chat.regenerate_last,
                "ask_several": self._ask_several,
                "rename": self._rename,
                "attach": self._attach,
                "toggle_tint": self.chat.toggle_tint,
                "chat_settings": self._show_chat_settings,
                "show_palette": self.dialogs.show_palette,
                "toggle_sidebar": lambda: self._toggle(self.folds.left),
                "toggle_panel": whole(lambda: self._toggle(self.folds.right)),
                "toggle_plots": whole(lambda: self._toggle(self.folds.charts)),
                "toggle_cache": whole(lambda: self._toggle(self.folds.pages)),
                "zoom_in": lambda: zoom.zoom(1),
                "zoom_out": lambda: zoom.zoom(-1),
                "zoom_reset": lambda: zoom.set_size(USUAL),
                "next_region": lambda: regions.step(True),
                "previous_region": lambda: regions.step(False),
                "show_chat": lambda: self.show_page(self.CHAT),
                "show_models": lambda: self.show_page(self.MODELS),
                "show_lab": whole(lambda: self.show_page(self.LAB)),
                "show_server": whole(lambda: self.show_page(self.SERVER)),
                "show_settings": lambda: self.show_page(self.SETTINGS),
                "show_help": lambda: self.show_page(self.HELP),
                "show_shortcuts": self.dialogs.show_shortcuts,
                "quick_chat": self.quick_asked.emit,
                "show_log": self.dialogs.show_log,
                "show_about": self.dialogs.show_about,
                "open_file": self.bar.selector.open_file,
                "get_model": self.chat.models_asked.emit,
                "reload_model": self.settings_page.engine.reload_requested.emit,
                "unload_model": self.chat.loads.unload,
                "close_window": self.close,
                "quit": self.presence.quit,
            },
            {
                "regenerate": lambda: "" if self.chat.last_prompt() is not None else tr("This chat has no answer yet."),
                "ask_several": lambda: self.chat.several.refusal,
                **dict.fromkeys(("toggle_panel", "show_lab", "show_server"), self.simple.refusal),
                "toggle_plots": lambda: self.simple.refusal() or ("" if self.folds.charts.isEnabled() else TOO_LOW),
                "toggle_cache": lambda: self.simple.refusal() or ("" if self.folds.pages.isEnabled() else TOO_LOW),
                "zoom_in": lambda: zoom.refusal(1),
                "zoom_out": lambda: zoom.refusal(-1),
                "reload_model": lambda: self.chat.loads.refusal,
                "unload_model": lambda: self.chat.loads.refusal,
            },
        )
        self.commands.explain(self.sidebar.new_button, "new_chat", tr("New chat"))
        self.commands.explain(self.sidebar.search, "search", tr("Search all chats"))
        self.commands.explain(self.chat.header.tint, "toggle_tint", TINT_HELP)
        for tab, action in zip(self.bar.tabs, _PAGES, strict=True):
            self.commands.explain(tab, action, tr("Go to {page}", page=tab.text()))

    def _parts(self) -> list[QWidget]:
        """The regions that F6 goes through."""
        if self.page != self.CHAT:
            return [self.bar, self._pages[self.page]]
        return [self.bar, self.sidebar, *self.chat.regions(), self.panel, self.cache, self.plots]

    def _toggle(self, fold: QToolButton) -> None:
        """Toggle a side, which is a part of the chat's page: on another page, show the chat with the side open."""
        if self.page == self.CHAT:
            fold.toggle()
        else:
            self.show_page(self.CHAT)
            fold.setChecked(True)

    def _new_chat(self) -> None:
        self.show_page(self.CHAT)
        self.chat.new_chat()

    def _show_chat_settings(self) -> None:
        self.show_page(self.CHAT)
        self.chat.header.settings_asked.emit()

    def _ask_several(self) -> None:
        self.show_page(self.CHAT)
        self.chat.several.choose()

    def _search(self) -> None:
        self.show_page(self.CHAT)
        self.folds.left.setChecked(True)
        self.sidebar.focus_search()

    def _find_in_chat(self, forward: bool | None = None) -> None:
        """Open the bar that finds words in the chat, or with ``forward`` go on to a match."""
        if self.page != self.CHAT:
            self.show_page(self.CHAT)
        if forward is None:
            self.chat.finding.begin()
        else:
            self.chat.finding.step(forward)

    def _rename(self) -> None:
        if self.page != self.CHAT:
            self.show_page(self.CHAT)
        self.folds.left.setChecked(True)
        self.sidebar.rename_chosen()

    def _restore(self) -> None:
        saved = self._appearance.store.settings.geometry
        if not (saved and self.restoreGeometry(QByteArray.fromBase64(saved.encode()))):
            self.resize(START.boundedTo(room_of(self)))

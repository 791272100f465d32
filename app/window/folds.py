"""The buttons of the top bar that show and hide the parts of the chat's page, as far as there is room for them."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.cache.view import CacheView
from app.chat.page import ChatPage
from app.commands.keymap import Keymap
from app.language import tr
from app.plots.strip import PlotStrip
from app.settings.store import SettingsStore
from app.theme.theme import Theme
from app.theme.widgets import tip
from app.window.sides import Sides
from app.window.topbar import TopBar

CACHE_SHARE = 0.37
"""The share of the window's height that the view of the cache takes."""
CACHE_HEIGHTS = (220, 460)
"""The least and the most of it at the usual text size."""
LEAST_TRANSCRIPT = 64
"""Pixels of the transcript that the plots and the cache leave."""
TOO_LOW = tr("The window is too low for that now.")


class Folds(QObject):
    """``left`` and ``right`` are of the sides, ``charts`` and ``pages`` of the plots and the view of the cache, which
    stand below the chat. What is open is remembered."""

    def __init__(
        self,
        bar: TopBar,
        chat: ChatPage,
        sides: Sides,
        plots: PlotStrip,
        cache: CacheView,
        keymap: Keymap,
        store: SettingsStore,
        theme: Theme,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._bar, self._chat, self._sides, self._plots, self._cache = bar, chat, sides, plots, cache
        self._keymap, self._store, self._theme, self._window = keymap, store, theme, window
        settings = store.settings
        self.left = bar.add_fold(tr("Show the list of chats"), "sidebar", settings.sidebar_open)
        self.charts = bar.add_fold(tr("Show the plots"), "plots", settings.plots_open)
        self.pages = bar.add_fold(tr("Show the cache: pages and prefix tree"), "cache", settings.cache_open)
        self.right = bar.add_fold(tr("Show the optimisations"), "panel", settings.panel_open)
        self._unfold_charts = settings.cache_open
        """True if the charts were open when the cache took their room."""
        keymap.changed.connect(self._explain)
        self.left.toggled.connect(sides.show_left)
        self.charts.toggled.connect(self._set_charts)
        self.pages.toggled.connect(self._set_pages)
        self.right.toggled.connect(sides.show_right)
        sides.begin_with(settings.sidebar_open, settings.panel_open)
        sides.shown.connect(self._on_sides)
        plots.plots_requested.connect(lambda: self.charts.setChecked(True))
        plots.panel_requested.connect(self.right.toggle)
        theme.changed.connect(self.fit)
        self.fit()

    def fit(self) -> None:
        """The message box keeps its room: where the window is too low for them, the cache and the plots stay folded."""
        height, simple = self._window.height(), self._store.settings.simple
        low, high = map(self._theme.px, CACHE_HEIGHTS)
        self._cache.setFixedHeight(max(low, min(high, round(CACHE_SHARE * height))))
        rest = height - self._bar.height() - self._chat.least_height - self._plots.line_height
        self._plots.setVisible(rest >= 0 and not simple)
        rest -= LEAST_TRANSCRIPT
        more = self._plots.open_height - self._plots.line_height
        for fold, needed in ((self.charts, more), (self.pages, self._cache.height())):
            fold.setEnabled(rest >= needed)
        self._explain()
        self._plots.set_collapsed(not (self.charts.isChecked() and self.charts.isEnabled()))
        self._cache.setVisible(self.pages.isChecked() and self.pages.isEnabled() and not simple)

    def _explain(self) -> None:
        """Name each part that folds, with the keys that fold it, or the reason that it cannot be unfolded now."""
        for fold, action in (
            (self.left, "toggle_sidebar"),
            (self.charts, "toggle_plots"),
            (self.pages, "toggle_cache"),
            (self.right, "toggle_panel"),
        ):
            words = self._keymap.explained(action, fold.accessibleName())
            fold.setToolTip(tip(words if fold.isEnabled() else f"{words}. {TOO_LOW}"))

    def _on_sides(self, left: bool, right: bool) -> None:
        """Remember which sides are open, unless they only lie over the chat for a moment."""
        self.left.setChecked(left)
        self.right.setChecked(right)
        if not self._sides.over:
            self._store.update(sidebar_open=left, panel_open=right)

    def _set_charts(self, on: bool) -> None:
        self.fit()
        self._store.update(plots_open=on)
        if on:
            self.pages.setChecked(False)

    def _set_pages(self, on: bool) -> None:
        """The cache takes the room of the charts, which stay as a line of figures until it closes."""
        if on:
            self._unfold_charts = self.charts.isChecked()
            self.charts.setChecked(False)
        self.fit()
        self._store.update(cache_open=on)
        if not on and self._unfold_charts:
            self._unfold_charts = False
            self.charts.setChecked(True)

"""The main window: top bar, the pages, side panels that collapse. It lays out what it is given and knows no engine."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QByteArray, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.cache.view import CacheView
from app.gpu.card import PackCard
from app.help.page import HelpPage
from app.notice import NoticeBar
from app.panel.panel import OptimisationPanel
from app.paths import licences_dir
from app.plots.strip import PlotStrip
from app.settings.page import SettingsPage
from app.settings.store import SettingsStore
from app.shortcuts import ShortcutsDialog, bind
from app.theme.theme import Theme
from app.topbar import TopBar

SIDEBAR_WIDTH = 232
PANEL_WIDTH = 316
NARROW = 1200
"""Below this window width the side panels give a little of theirs to the transcript."""
NARROW_SIDEBAR_WIDTH = 200
NARROW_PANEL_WIDTH = 292
CACHE_SHARE = 0.37
"""Of the window's height, for the view of the cache."""
CACHE_HEIGHTS = (236, 460)
MINIMUM = QSize(1024, 700)
START = QSize(1440, 900)


class ChatArea(Protocol):
    """What the window asks of the chat page, which is also a QWidget."""

    def new_chat(self) -> None: ...
    def focus_composer(self) -> None: ...
    def stop(self) -> None: ...
    def regenerate_last(self) -> None: ...
    def toggle_tint(self) -> None: ...


class SearchArea(Protocol):
    """What the window asks of the sidebar, which is also a QWidget."""

    def focus_search(self) -> None: ...


class MainWindow(QWidget):
    """``painted`` is emitted once, after the window has first been painted."""

    painted = Signal()
    CHAT, HELP, SETTINGS = range(3)

    def __init__(
        self,
        *,
        sidebar: QWidget,
        chat: QWidget,
        panel: OptimisationPanel,
        plots: PlotStrip,
        cache: CacheView,
        help_page: HelpPage,
        settings_page: SettingsPage,
        store: SettingsStore,
        theme: Theme,
    ) -> None:
        super().__init__()
        self.sidebar, self.chat, self.panel, self.plots, self.cache = sidebar, chat, panel, plots, cache
        self.help_page, self.settings_page = help_page, settings_page
        # A plain QWidget paints the background of its style sheet only when told to.
        for page in (sidebar, chat, panel, plots, cache, help_page, settings_page, self):
            page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._chat_area: ChatArea = chat  # type: ignore[assignment]
        self._search_area: SearchArea = sidebar  # type: ignore[assignment]
        self._store, self._theme = store, theme
        self._was_painted = False
        self._unfold_plots = False
        """Whether the charts were open when the cache took their room."""
        self.setWindowTitle("Kvasir")
        self.setObjectName("window")
        self.setProperty("surface", "panel")
        self.setMinimumSize(MINIMUM)
        self.bar = TopBar(["Chat", "Help", "Settings"], theme)
        self.bar.page_chosen.connect(self.show_page)
        self.notice = NoticeBar(theme)
        self.gpu_card = PackCard()
        self._stack = QStackedWidget()
        self._pages: tuple[QWidget, ...] = (self._chat_page(), help_page, settings_page)
        for page in self._pages:
            self._stack.addWidget(page)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.bar)
        column.addWidget(self.notice)
        column.addWidget(self.gpu_card)
        column.addWidget(self._stack, 1)
        self._add_folds()
        help_page.shortcuts_requested.connect(self.show_shortcuts)
        help_page.about_requested.connect(self.show_about)
        self._bind()
        self._restore()
        theme.changed.connect(self._fit_sides)
        self._chat_area.focus_composer()  # one can type at once

    @property
    def page(self) -> int:
        return self._stack.currentIndex()

    def show_page(self, index: int) -> None:
        self._stack.setCurrentIndex(index)
        self.bar.choose(index)
        if index == self.CHAT:
            self._chat_area.focus_composer()
        else:
            self._pages[index].setFocus()

    def show_shortcuts(self) -> None:
        """The list of shortcuts, beside which the window stays usable."""
        dialog = ShortcutsDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def show_about(self) -> None:
        """Version and licences, beside which the window stays usable."""
        from app.help.about import AboutDialog  # few ever ask

        dialog = AboutDialog(licences_dir(), self._theme, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def to_front(self) -> None:
        """A second start of the program ends here."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_painted:
            self._was_painted = True
            QTimer.singleShot(0, self.painted.emit)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_sides()
        low, high = CACHE_HEIGHTS
        self.cache.setFixedHeight(max(low, min(high, round(CACHE_SHARE * event.size().height()))))

    def _fit_sides(self) -> None:
        """Wider with larger text, as far as the transcript keeps two fifths of the window."""
        width = self.width()
        narrow = width < NARROW
        left = NARROW_SIDEBAR_WIDTH if narrow else SIDEBAR_WIDTH
        right = NARROW_PANEL_WIDTH if narrow else PANEL_WIDTH
        self._left.setFixedWidth(max(left, min(self._theme.px(left), width // 5)))
        self._right.setFixedWidth(max(right, min(self._theme.px(right), 2 * width // 5)))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self._chat_area.stop()
        else:
            super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        self._store.update(geometry=bytes(self.saveGeometry().toBase64().data()).decode())
        super().closeEvent(event)

    def _chat_page(self) -> QWidget:
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        row = QHBoxLayout()
        row.setSpacing(0)
        self._left = _edged(self.sidebar, "right", SIDEBAR_WIDTH)
        self._right = _edged(self.panel, "left", PANEL_WIDTH)
        row.addWidget(self._left)
        row.addWidget(self.chat, 1)
        row.addWidget(self._right)
        column.addLayout(row, 1)
        column.addWidget(self.cache)
        rule = QFrame()
        rule.setProperty("edge", "top")
        rule.setFixedHeight(1)
        column.addWidget(rule)
        column.addWidget(self.plots)
        return page

    def _add_folds(self) -> None:
        settings = self._store.settings
        self._fold_left = self.bar.add_fold("Show the list of chats", "sidebar", settings.sidebar_open)
        self._fold_plots = self.bar.add_fold("Show the plots", "plots", settings.plots_open)
        self._fold_cache = self.bar.add_fold("Show the cache: pages and prefix tree", "cache", settings.cache_open)
        self._fold_right = self.bar.add_fold("Show the optimisations", "panel", settings.panel_open)
        self._fold_left.toggled.connect(self._set_sidebar)
        self._fold_plots.toggled.connect(self._set_plots)
        self._fold_cache.toggled.connect(self._set_cache)
        self._fold_right.toggled.connect(self._set_panel)
        self._left.setVisible(settings.sidebar_open)
        self._right.setVisible(settings.panel_open)
        self.plots.set_collapsed(not settings.plots_open)
        self.cache.setVisible(settings.cache_open)
        self._unfold_plots = settings.cache_open

    def _set_sidebar(self, on: bool) -> None:
        self._left.setVisible(on)
        self._store.update(sidebar_open=on)

    def _set_panel(self, on: bool) -> None:
        self._right.setVisible(on)
        self._store.update(panel_open=on)

    def _set_plots(self, on: bool) -> None:
        self.plots.set_collapsed(not on)
        self._store.update(plots_open=on)
        if on:
            self._fold_cache.setChecked(False)

    def _set_cache(self, on: bool) -> None:
        """The cache takes the room of the charts, which stay as a line of figures until it closes."""
        if on:
            self._unfold_plots = not self.plots.collapsed
            self._fold_plots.setChecked(False)
        self.cache.setVisible(on)
        self._store.update(cache_open=on)
        if not on and self._unfold_plots:
            self._unfold_plots = False
            self._fold_plots.setChecked(True)

    def _bind(self) -> None:
        self._shortcuts = bind(
            self,
            {
                "new_chat": self._new_chat,
                "search": self._search,
                "focus_composer": lambda: self.show_page(self.CHAT),
                "regenerate": self._chat_area.regenerate_last,
                "toggle_tint": self._chat_area.toggle_tint,
                "toggle_sidebar": self._fold_left.toggle,
                "toggle_panel": self._fold_right.toggle,
                "toggle_plots": self._fold_plots.toggle,
                "toggle_cache": self._fold_cache.toggle,
                "show_chat": lambda: self.show_page(self.CHAT),
                "show_settings": lambda: self.show_page(self.SETTINGS),
                "show_help": lambda: self.show_page(self.HELP),
                "show_shortcuts": self.show_shortcuts,
                "quit": self.close,
            },
        )

    def _new_chat(self) -> None:
        self.show_page(self.CHAT)
        self._chat_area.new_chat()

    def _search(self) -> None:
        self.show_page(self.CHAT)
        self._fold_left.setChecked(True)
        self._search_area.focus_search()

    def _restore(self) -> None:
        saved = self._store.settings.geometry
        if saved and self.restoreGeometry(QByteArray.fromBase64(saved.encode())):
            return
        screen = QApplication.primaryScreen()
        room = screen.availableSize() if screen is not None else START
        self.resize(START.boundedTo(room).expandedTo(MINIMUM))


def _edged(inner: QWidget, side: str, width: int) -> QFrame:
    """``inner`` in a column of fixed width with a hairline towards the middle."""
    frame = QFrame()
    frame.setProperty("edge", side)
    frame.setProperty("surface", "panel")
    frame.setFixedWidth(width)
    row = QHBoxLayout(frame)
    row.setContentsMargins(0, 0, 0, 0)
    row.addWidget(inner)
    return frame

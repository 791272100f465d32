"""The main window: top bar, the pages, side panels that collapse. It lays out what it is given and knows no engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QFrame, QMessageBox, QStackedWidget, QToolButton, QVBoxLayout, QWidget

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
from app.paths import licences_dir
from app.plots.strip import PlotStrip
from app.settings.appearance import USUAL, Appearance
from app.settings.page import SettingsPage
from app.theme.room import Scrolled, room_of
from app.theme.theme import Theme
from app.theme.widgets import fill, named, tip
from app.window.regions import Regions
from app.window.sides import Sides
from app.window.simple import SimpleMode
from app.window.topbar import TopBar
from app.window.zoom import WheelZoom

CACHE_SHARE = 0.37
"""The share of the window's height that the view of the cache takes."""
CACHE_HEIGHTS = (220, 460)
"""The least and the most of it at the usual text size."""
LEAST_TRANSCRIPT = 64
"""Pixels of the transcript that the plots and the cache leave."""
MINIMUM = QSize(800, 600)
GOES_ON = tr("Downloads and quantising go on next time.")
START = QSize(1440, 900)
_PAGES = ("show_chat", "show_models", "show_lab", "show_server", "show_help", "show_settings")
"""The commands that show the pages, in the order of the tabs."""
_UNWRITTEN = "unwritten"
"""Topic of the notice that settings could not be written."""
_TOO_LOW = tr("The window is too low for that now.")


if TYPE_CHECKING:
    from app.commands.palette import Palette


class MainWindow(QWidget):
    """``painted`` is emitted once, after the window has first been painted."""

    painted = Signal()
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
        self.models_page, self.help_page, self.settings_page = models_page, help_page, settings_page
        # A plain QWidget paints the background of its style sheet only when told to.
        pages = (models_page, lab_page, server_page, help_page, settings_page)
        for page in (sidebar, chat, panel, plots, cache, *pages, self):
            page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._store, self._theme, self._appearance = store, theme, appearance
        self.commands = Commands(store, self)
        self._palette: Palette | None = None
        self._log_file = log_file
        self._was_painted = False
        self.unfinished: Callable[[], Sequence[str]] = list
        """Returns what the program's end would lose, each as a sentence."""
        self._screen_watched = False
        self._leaves = False
        """True if the window closes without a question."""
        self._quits = False
        """True if closing it ends the program, wherever it could be hidden."""
        self.hides: Callable[[], bool] = bool
        """Returns True if closing the window hides it, and the program goes on."""
        self._unfold_plots = False
        """True if the charts were open when the cache took their room."""
        self.setWindowTitle("Kvasir")
        named(self, "window", surface="panel")
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
        self._add_folds()
        self.simple.changed.connect(self._fit_mode)
        help_page.shortcuts_requested.connect(self.show_shortcuts)
        help_page.about_requested.connect(self.show_about)
        help_page.log_requested.connect(self.show_log)
        settings_page.shortcuts_requested.connect(self.show_shortcuts)
        settings_page.log_requested.connect(self.show_log)
        self._notices = TakeTurns(self.notice, chat.notice, lambda: self.page == self.CHAT)
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
        self._notices.settle()
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

    def show_shortcuts(self) -> None:
        """Show the list of shortcuts; the window stays usable meanwhile."""
        from app.commands.dialog import ShortcutsDialog  # few ever ask

        dialog = ShortcutsDialog(self.commands.keymap, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def show_palette(self) -> None:
        """Show all commands; while they are on show, close them."""
        if self._palette is None:
            from app.commands.palette import Palette  # not at the start of the program

            self._palette = Palette(self.commands, self._theme, self)
        if self._palette.isVisible():
            self._palette.close_down()
        else:
            self._palette.open()

    def show_log(self) -> None:
        """Show the log; the window stays usable meanwhile."""
        from app.help.log_view import LogDialog  # few ever ask

        dialog = LogDialog(self._log_file, self._theme, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def show_about(self) -> None:
        """Show version and licences; the window stays usable meanwhile."""
        from app.help.about import AboutDialog  # few ever ask

        dialog = AboutDialog(licences_dir(), self._theme, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.show()

    def to_front(self) -> None:
        """A second start of the program ends here."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        QApplication.setQuitOnLastWindowClosed(True)
        self.raise_()
        self.activateWindow()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_painted:
            self._was_painted = True
            QTimer.singleShot(0, self.painted.emit)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_parts()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._screen_watched:  # there is a window of the desktop's from now on
            self._screen_watched = True
            self.windowHandle().screenChanged.connect(self._fit_screen)
            WheelZoom(self.windowHandle(), self._appearance, self)
        self._fit_screen()

    def _fit_screen(self, *_: object) -> None:
        """A screen of few pixels, or one that shows everything larger, has less room than the window asks for."""
        self.setMinimumSize(MINIMUM.boundedTo(room_of(self)))

    def _fit_parts(self) -> None:
        """The message box keeps its room: where the window is too low for them, the cache and the plots stay folded."""
        low, high = map(self._theme.px, CACHE_HEIGHTS)
        self.cache.setFixedHeight(max(low, min(high, round(CACHE_SHARE * self.height()))))
        rest = self.height() - self.bar.height() - self.chat.least_height - self.plots.line_height
        self.plots.setVisible(rest >= 0 and not self.simple.on)
        rest -= LEAST_TRANSCRIPT
        more = self.plots.open_height - self.plots.line_height
        for fold, high in ((self._fold_plots, more), (self._fold_cache, self.cache.height())):
            fold.setEnabled(rest >= high)
        self._explain_folds()
        self.plots.set_collapsed(not (self._fold_plots.isChecked() and self._fold_plots.isEnabled()))
        self.cache.setVisible(self._fold_cache.isChecked() and self._fold_cache.isEnabled() and not self.simple.on)

    def _fit_mode(self) -> None:
        """Simple mode leaves chats and models."""
        simple = self.simple.on
        self.bar.hide_parts((self.LAB, self.SERVER) if simple else (), ("plots", "cache", "panel") if simple else ())
        self.sides.hold_right(simple)
        self.chat.welcome.show_why(not simple)
        self._rule.setVisible(not simple)
        self._fit_parts()
        if simple and self.page in (self.LAB, self.SERVER):
            self.show_page(self.CHAT)

    def _explain_folds(self) -> None:
        """Name each part that folds, with the keys that fold it, or the reason that it cannot be unfolded now."""
        for fold, action in self._folds:
            words = self.commands.keymap.explained(action, fold.accessibleName())
            fold.setToolTip(tip(words if fold.isEnabled() else f"{words}. {_TOO_LOW}"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            if not self.close_overlay():
                self.chat.stop()
        else:
            super().keyPressEvent(event)

    def put_away(self) -> None:
        """Hide the window; the program goes on, whatever other window is closed meanwhile."""
        QApplication.setQuitOnLastWindowClosed(False)
        self.hide()

    def quit(self) -> None:
        """Close, and do not hide instead; asks first where something is under way."""
        self._quits = True
        self.close()
        self._quits = False

    def leave(self) -> None:
        """Close, and ask nothing."""
        self._leaves = True
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        if not (self._leaves or self._quits) and self.hides():
            event.ignore()
            self.put_away()
            return
        if not self._leaves and (lost := self.unfinished()):
            event.ignore()
            if not self.isVisible():  # the tray asked for it
                self.to_front()
            self._ask_to_leave(lost)
            return
        self._store.update(geometry=bytes(self.saveGeometry().toBase64().data()).decode())
        super().closeEvent(event)
        self.left.emit()

    def _ask_to_leave(self, lost: Sequence[str]) -> None:
        """Window-modal: what is under way goes on meanwhile."""
        if self.findChild(QMessageBox, "window.leave") is not None:
            return
        ends = tr("Quitting ends that.") if len(lost) == 1 else tr("Quitting ends all of that.")
        question = " ".join([*lost, ends, GOES_ON])
        icon, stay = QMessageBox.Icon.Question, QMessageBox.StandardButton.Cancel
        box = named(QMessageBox(icon, tr("Quit Kvasir"), question, stay, self), "window.leave")
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.addButton(tr("Quit now"), QMessageBox.ButtonRole.DestructiveRole).clicked.connect(self.leave)
        box.setDefaultButton(stay)
        box.open()

    def _chat_page(self) -> QWidget:
        page = QWidget()
        column = fill(QVBoxLayout(page), margins=0, spacing=0)
        self.sides = Sides(self.sidebar, self.chat, self.panel, self._theme)
        fill(column, (self.sides, 1), self.cache)
        self._rule = named(QFrame(), edge="top")
        self._rule.setFixedHeight(1)
        fill(column, self._rule, self.plots)
        return page

    def _add_folds(self) -> None:
        settings = self._store.settings
        self._fold_left = self.bar.add_fold(tr("Show the list of chats"), "sidebar", settings.sidebar_open)
        self._fold_plots = self.bar.add_fold(tr("Show the plots"), "plots", settings.plots_open)
        self._fold_cache = self.bar.add_fold(tr("Show the cache: pages and prefix tree"), "cache", settings.cache_open)
        self._fold_right = self.bar.add_fold(tr("Show the optimisations"), "panel", settings.panel_open)
        self._folds = (
            (self._fold_left, "toggle_sidebar"),
            (self._fold_plots, "toggle_plots"),
            (self._fold_cache, "toggle_cache"),
            (self._fold_right, "toggle_panel"),
        )
        self.commands.keymap.changed.connect(self._explain_folds)
        self._fold_left.toggled.connect(self.sides.show_left)
        self._fold_plots.toggled.connect(self._set_plots)
        self._fold_cache.toggled.connect(self._set_cache)
        self._fold_right.toggled.connect(self.sides.show_right)
        self.sides.begin_with(settings.sidebar_open, settings.panel_open)
        self.sides.shown.connect(self._on_sides)
        self.plots.plots_requested.connect(lambda: self._fold_plots.setChecked(True))
        self.plots.panel_requested.connect(self._fold_right.toggle)
        self._unfold_plots = settings.cache_open
        self._theme.changed.connect(self._fit_parts)
        self._fit_parts()

    def _on_sides(self, left: bool, right: bool) -> None:
        """Remember which sides are open, unless they only lie over the chat for a moment."""
        self._fold_left.setChecked(left)
        self._fold_right.setChecked(right)
        if not self.sides.over:
            self._store.update(sidebar_open=left, panel_open=right)

    def show_why_fast(self) -> None:
        """The panel and the plots, which show what makes it fast."""
        self.simple.unless_hidden(self._unfold)()

    def _unfold(self) -> None:
        self._fold_right.setChecked(True)
        self._fold_plots.setChecked(True)

    def show_switch(self, key: str) -> bool:
        """Show a switch in the panel, wherever it stands there; whether there is such a switch now."""
        self.show_page(self.CHAT)
        self._fold_right.setChecked(True)
        return self.panel.reveal(key)

    def _set_plots(self, on: bool) -> None:
        self._fit_parts()
        self._store.update(plots_open=on)
        if on:
            self._fold_cache.setChecked(False)

    def _set_cache(self, on: bool) -> None:
        """The cache takes the room of the charts, which stay as a line of figures until it closes."""
        if on:
            self._unfold_plots = self._fold_plots.isChecked()
            self._fold_plots.setChecked(False)
        self._fit_parts()
        self._store.update(cache_open=on)
        if not on and self._unfold_plots:
            self._unfold_plots = False
            self._fold_plots.setChecked(True)

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
                "show_palette": self.show_palette,
                "toggle_sidebar": lambda: self._toggle(self._fold_left),
                "toggle_panel": whole(lambda: self._toggle(self._fold_right)),
                "toggle_plots": whole(lambda: self._toggle(self._fold_plots)),
                "toggle_cache": whole(lambda: self._toggle(self._fold_cache)),
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
                "show_shortcuts": self.show_shortcuts,
                "show_log": self.show_log,
                "show_about": self.show_about,
                "open_file": self.bar.selector.open_file,
                "get_model": self.chat.models_asked.emit,
                "reload_model": self.settings_page.reload_requested.emit,
                "unload_model": self.chat.loads.unload,
                "quit": self.quit,
            },
            {
                "regenerate": lambda: "" if self.chat.last_prompt() is not None else tr("This chat has no answer yet."),
                "ask_several": lambda: self.chat.several.refusal,
                **dict.fromkeys(("toggle_panel", "show_lab", "show_server"), self.simple.refusal),
                "toggle_plots": lambda: self.simple.refusal() or ("" if self._fold_plots.isEnabled() else _TOO_LOW),
                "toggle_cache": lambda: self.simple.refusal() or ("" if self._fold_cache.isEnabled() else _TOO_LOW),
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
        self._fold_left.setChecked(True)
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
        self._fold_left.setChecked(True)
        self.sidebar.rename_chosen()

    def _restore(self) -> None:
        saved = self._store.settings.geometry
        if not (saved and self.restoreGeometry(QByteArray.fromBase64(saved.encode()))):
            self.resize(START.boundedTo(room_of(self)))

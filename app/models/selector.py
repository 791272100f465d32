"""In the title row of every page: which model answers, how far one is that is being loaded, and a menu of all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QSizePolicy, QWidget

from app import model_dialog
from app.language import figure, tr
from app.link.link import EngineLink, LinkState
from app.models import cards, words
from app.models.state.loads import ModelLoads
from app.proposers import trained
from app.theme.menus import ARROW, MenuButton
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, FillBar, as_written, button_text, fill, menu_text, named, tip
from engine import protocol

OPEN_HELP = tr("A GGUF file, or the folder of a model in safetensors, GPTQ, AWQ or NF4.")
IDLE = tr("Unloaded, because nothing was asked of it for a while. The next message loads it again.")
LEAST_PX, MOST_PX = 96, 300
"""Width of the button: with the beginning of a name, and the most that a long one takes."""
STATES = {
    LinkState.CONNECTED: tr("Choose a model"),
    LinkState.STARTING: tr("The engine is starting"),
    LinkState.RESTARTING: tr("The engine is restarting"),
    LinkState.DEAD: tr("The engine is not running"),
}
"""Titles without a model."""


class ModelButton(MenuButton):
    """The model's name, cut where it has no room, and what is said of it: both, or no more than the name. Its size does
    not depend on what it shows now."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._after, self._keeps = "", False
        self.bar = FillBar(theme, self)
        """How far a load is, along the lower edge."""
        self.bar.setFixedHeight(3)
        self.bar.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.bar.hide()
        named(self, "model-selector", kind="")
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    def say(self, name: str, after: str, keeps: bool = False) -> None:
        """``after`` follows the name, in a narrow window only if it ``keeps`` its place."""
        if (name, after, keeps) != (self._title, self._after, self._keeps):
            self._after, self._keeps = after, keeps
            self.show_title(name)
            self.updateGeometry()

    def sizeHint(self) -> QSize:
        most = self._theme.px(MOST_PX)
        return QSize(min(most, self._width(self._title + self._after)), super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(min(self._theme.px(LEAST_PX), self.sizeHint().width()), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.bar.setGeometry(3, self.height() - 4, self.width() - 6, 3)

    def _width(self, text: str) -> int:
        return self.fontMetrics().horizontalAdvance(text + ARROW) + self.edges

    def _fit(self) -> None:
        whole = self._title + self._after
        fits = self._width(whole) <= self.width()
        after = self._after if fits or self._keeps else ""
        room = self.width() - self._width(after)
        shown = self.fontMetrics().elidedText(self._title, Qt.TextElideMode.ElideRight, max(0, room))
        self.setText(button_text((self._title if fits else shown) + after) + ARROW)


class ModelSelector(QWidget):
    """Loads go to ``loads``, everything else comes out as signals. Its clock runs only while a model is loaded."""

    load_settings_asked = Signal(str)
    """The person wants to see how the model at that path is loaded."""
    local_asked = Signal()
    """The chat on screen is to be answered by the model of this machine again."""
    get_asked = Signal()
    """The person wants a model that is not here."""
    menu_shown = Signal()
    """The menu of the models opens."""

    def __init__(self, link: EngineLink, loads: ModelLoads, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link, self.loads = link, loads
        self._remote: protocol.RemoteModel | None = None
        self._began = 0.0
        self.model = ModelButton(theme, self)
        self._menu = self.model.menu()
        self._menu.setToolTipsVisible(True)
        self._menu.aboutToShow.connect(self.fill_menu)
        self._menu.aboutToShow.connect(self.menu_shown)
        self.stage = named(ElidedLabel("", "caption"), "loading-words")
        self.stage.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.stop = QPushButton(tr("Cancel"), self)
        named(self.stop, "cancel-load", title=tr("Cancel loading the model"), kind="quiet")
        self.stop.clicked.connect(loads.cancel)
        self.stop.hide()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        fill(QHBoxLayout(self), (self.stage, 1), self.model, self.stop, margins=0, spacing=6)
        self._clock = named(QTimer(self, interval=1000), "loading-clock")
        self._clock.timeout.connect(self._tell)
        loads.changed.connect(self.refresh)
        theme.changed.connect(self.model.updateGeometry)
        self.refresh()

    @property
    def text(self) -> str:
        """Words about the load under way: "Loading tiny: reading weights 40% · 3 s"; "" without one."""
        return self.stage.text()

    def set_remote(self, remote: protocol.RemoteModel | None) -> None:
        """The model of another server that answers in the chat on screen."""
        if remote != self._remote:
            self._remote = remote
            self.refresh()

    def refresh(self) -> None:
        card, loading = self._link.card if self._remote is None else None, self.loads.loading
        self.model.setEnabled(self._link.state is LinkState.CONNECTED)
        if loading is None:
            self._clock.stop()
        elif not self._clock.isActive():
            self._began = time.monotonic()
            self._clock.start()
        self.stop.setVisible(loading is not None)
        self.model.bar.setVisible(loading is not None and self._remote is None)
        about = [cards.about(card), *([IDLE] if self._link.idle else [])] if card is not None else []
        self.model.setToolTip(as_written("\n".join(about)) if loading is None else "")
        self._tell()

    def close_down(self) -> None:
        """The program closes."""
        self._clock.stop()

    def _tell(self) -> None:
        loading = self.loads.loading
        name, after = self._title()
        self.model.say(name, after, loading is not None)
        words = tr("Model: {name}", name=name + after)
        if loading is None:
            self.stage.setText("")
        else:
            stage = f"{loading.stage} · {figure(time.monotonic() - self._began, '.0f')} s"
            self.stage.setText(tr("Loading {name}: {stage}", name=Path(loading.model).name, stage=stage))
            self.stage.short = stage
            self.model.bar.fraction = loading.fraction
            self.model.bar.update()
            words = f"{words}, {loading.stage}"
            self.model.setToolTip(tip(self.stage.text()))
        if words != self.model.accessibleName():
            self.model.setAccessibleName(words)

    def _title(self) -> tuple[str, str]:
        """What stands on the button: a name, and what follows it."""
        card, loading = self._link.card, self.loads.loading
        if self._remote is not None:
            return self._remote.model, f" · {self._remote.server}"
        if loading is not None:
            return Path(loading.model).name, " · " + tr("{percent:.0f}%", percent=100 * loading.fraction)
        if card is not None:
            return card.name, f" · {tr('unloaded') if self._link.idle else cards.short(card.quantisation)}"
        return STATES[self._link.state], ""

    def fill_menu(self) -> None:
        """Build the menu from what the engine knows now."""
        menu, card = self._menu, self._link.card
        menu.clear()
        if self.loads.loading is not None:
            menu.addAction(tr("Cancel loading"), self.loads.cancel)
            return
        if self._remote is not None:
            menu.addAction(tr("Answer on this machine again"), self.local_asked.emit)
            menu.addSeparator()
        stored = {model.path: model for model in self.loads.choice.library.stored}
        for name, path in self._models():
            there = not os.path.isabs(path) or os.path.exists(path) or path in self._known()
            here = self._remote is None and card is not None and Path(path) == Path(card.path)
            known = stored.get(path)
            adapters = len(self._link.adapters) if card is not None and Path(path) == Path(card.path) else 0
            said = words.in_menu(known, adapters) if known is not None and not known.missing else ""
            action = self._checkable(menu, name, here, said)
            action.setEnabled(there)
            action.setToolTip(as_written(path if there else tr("{path} is not there any more.", path=path)))
            action.triggered.connect(lambda _=False, path=path: self._choose(path))
        menu.addSeparator()
        menu.addAction(tr("Get a model…"), self.get_asked.emit)
        menu.addAction(tr("Open a file…"), self.open_file).setToolTip(OPEN_HELP)
        self._fill_helpers(menu.addMenu(tr("Speculation helper")))
        if card is not None:
            menu.addSeparator()
            path = card.path
            menu.addAction(tr("Load settings…"), lambda: self.load_settings_asked.emit(path))
        if card is not None and not self._link.idle:
            menu.addAction(tr("Unload the model"), self.loads.unload)

    def _choose(self, path: str) -> None:
        """Have a model of this machine answer, which may be loaded already while another server's answers."""
        there = self._remote is not None and self._link.card is not None and self._link.card.path == path
        self.local_asked.emit()
        if not there:
            self.loads.load(path, self.loads.choice.default_draft(path))

    def _known(self) -> dict[str, str]:
        """Path -> name of the models of this machine: as listed last, before that as the engine found them."""
        welcome = self._link.welcome
        started = welcome.models if welcome is not None else []
        listed = [model for model in self.loads.choice.library.stored if not model.missing]
        return {model.path: model.name for model in listed or started}

    def _models(self) -> list[tuple[str, str]]:
        """(name, path) for the menu: those used last, then the others of this machine."""
        known = self._known()
        paths = dict.fromkeys([*self.loads.choice.store.settings.recent, *known])
        return [(known.get(path) or Path(path).name, path) for path in paths]

    def _fill_helpers(self, menu: QMenu) -> None:
        card = self._link.card
        menu.setToolTipsVisible(True)
        menu.setEnabled(card is not None)
        none = card is not None and not card.draft and not card.heads
        built_in = card is not None and self.loads.own_draft and not none
        self._checkable(menu, tr("Built-in"), built_in).triggered.connect(lambda: self.loads.help_with(None))
        self._checkable(menu, tr("No draft"), none).triggered.connect(lambda: self.loads.help_with(""))
        offered = self.loads.choice.drafts(card.path) if card is not None else None
        helpers = self._known() if offered is None else {each.path: each.name for each in offered if each.path}
        for path, name in helpers.items():
            action = self._checkable(menu, name, card is not None and card.draft == name and not built_in)
            action.triggered.connect(lambda _=False, path=path: self.loads.help_with(path))
        kinds = trained()
        choose = tr("Choose a draft model or {kinds} heads…", kinds="/".join(sorted(kinds)))
        serve = tr(
            "{kinds} heads, or an assistant of Gemma 4, made for the model serve as well as a draft model.",
            kinds=cards.one_of(kinds),
        )
        menu.addAction(menu_text(choose), self._choose_helper).setToolTip(tip(serve))

    def open_file(self) -> None:
        """Ask for a model's file or folder, and load it."""
        if path := self._ask(tr("Open a model"), model_dialog.MODELS, model_dialog.is_model):
            self.loads.load(path, self.loads.choice.default_draft(path))

    def _choose_helper(self) -> None:
        title = tr("Choose a draft model, or {kinds} heads", kinds=cards.one_of(sorted(trained())))
        if path := self._ask(title, model_dialog.HELPERS, model_dialog.is_helper):
            self.loads.help_with(path)

    def _ask(self, title: str, files: str, suits: Callable[[str], bool]) -> str:
        store = self.loads.choice.store
        if path := model_dialog.ask(self, title, store.settings.folder, files, suits):
            store.update(folder=str(Path(path).parent))
        return path

    def _checkable(self, menu: QMenu, title: str, checked: bool, said: str = "") -> QAction:
        """``said`` stands in a column of its own."""
        action = menu.addAction(menu_text(title, said))
        action.setToolTip(tip(title))  # Qt would show the title as it is in the menu, marked up
        action.setCheckable(True)
        action.setChecked(checked)
        return action

"""Gives the palette what can be opened, switched and chosen: models, chats, switches, presets and more. No widget is
made here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject

from app.chat.elsewhere import reason as elsewhere
from app.commands.registry import Command
from app.help.page import HelpPage
from app.history.store import HistoryStore
from app.lab.tools import TOOLS
from app.language import english, known, tr
from app.link.link import EngineLink
from app.link.switches import reason
from app.models.state.library import ModelLibrary
from app.panel.controls import value_title
from app.settings.appearance import SIZES
from app.settings.page import THEMES
from app.settings.store import SettingsStore
from app.window.simple import SHOW
from app.window.window import MainWindow
from engine.protocol import OptionSpec, Value

NOW = tr("It is so now.")


class PaletteWiring(QObject):
    """Lives as long as the window. ``open_model`` loads a model by its path, ``experiments`` gives the titles of the
    Lab's by their names, and ``show_experiment`` shows one."""

    def __init__(
        self,
        link: EngineLink,
        store: SettingsStore,
        library: ModelLibrary,
        history: HistoryStore,
        help_page: HelpPage,
        open_model: Callable[[str], object],
        experiments: Callable[[], Mapping[str, str]],
        show_experiment: Callable[[str], object],
        window: MainWindow,
    ) -> None:
        super().__init__(window)
        self._link, self._store, self._library, self._history = link, store, library, history
        self._help_page, self._window = help_page, window
        self._open_model, self._experiments, self._show_experiment = open_model, experiments, show_experiment
        parts = (self._models, self._looks, self._presets, self._switches, self._lab, self._settings, self._help)
        window.commands.sources += [*parts, self._chats]

    def _models(self) -> Iterator[Command]:
        names = {model.path: model.name for model in self._library.stored if not model.missing}
        card, remote = self._link.card, self._window.chat.session.talk.chat.remote
        for path in dict.fromkeys([*self._store.settings.recent, *names]):
            here = card is not None and card.path == path and remote is None
            gone = not (path in names or os.path.exists(path))
            why = NOW if here else tr("{path} is not there any more.", path=path) if gone else ""
            name = names.get(path) or Path(path).name
            yield Command(f"model {path}", name, partial(self._open_model, path), tr("Open model"), refused=why)

    def _looks(self) -> Iterator[Command]:
        now = self._store.settings
        for mode, title in THEMES.items():
            run = partial(self._store.update, theme=mode)
            yield Command(f"theme {mode}", title, run, tr("Theme"), refused=NOW if now.theme == mode else "")
        title = SHOW if now.simple else tr("Hide all but chats and models")
        yield Command("simple", title, partial(self._store.update, simple=not now.simple), tr("Simple mode"))
        for size in SIZES:
            run = partial(self._store.update, text_scale=size / 100)
            why = NOW if round(100 * now.text_scale) == size else ""
            yield Command(f"size {size}", f"{size} %", run, tr("Text size"), refused=why, quiet=True)

    def _presets(self) -> Iterator[Command]:
        session = self._window.chat.session
        for name, preset in sorted(self._store.settings.presets.items()):
            run = partial(session.set_settings, preset.system, preset.sampling)
            yield Command(f"preset {name}", name, run, tr("Preset for this chat"))

    def _switches(self) -> Iterator[Command]:
        """The switches of the panel, wherever they stand there, and each value that one can be given by name."""
        if self._window.simple.on:
            return
        link = self._link
        remote = elsewhere(self._window.chat.session.talk.chat.remote)
        values = {spec.key: spec.value for spec in link.catalogue}
        for spec in link.catalogue:
            if spec.hidden or (spec.of and values.get(spec.of) not in spec.of_values):
                continue
            show = partial(self._window.show_switch, spec.key)
            name = known(spec.title)
            yield Command(f"switch {spec.key}", f"{name}…", show, tr("Optimisation"), quiet=True)
            for value in _values(spec):
                why = remote or (NOW if value == spec.value else reason(spec, value))
                run = partial(self._window.panel.value_changed.emit, spec.key, value)
                title = f"{name}: {value_title(spec, value)}"
                yield Command(f"switch {spec.key} {value}", title, run, tr("Optimisation"), refused=why, quiet=True)

    def _lab(self) -> Iterator[Command]:
        if self._window.simple.on:
            return
        for name, title in {**self._experiments(), **TOOLS}.items():
            yield Command(f"lab {name}", title, partial(self._show_experiment, name), tr("Lab"), quiet=True)

    def _settings(self) -> Iterator[Command]:
        page = self._window.settings_page
        for row in page.rows:
            run = partial(self._show, MainWindow.SETTINGS, partial(page.reveal, row))
            yield Command(f"setting {english(row.name)}", row.name, run, tr("Settings"), quiet=True)

    def _help(self) -> Iterator[Command]:
        for page in self._help_page.pages:
            run = partial(self._show, MainWindow.HELP, partial(self._help_page.open, page))
            yield Command(f"help {page.group} {page.title}", page.title, run, tr("Help"), quiet=True)

    def _chats(self) -> Iterator[Command]:
        here = self._window.chat.chat_id
        for chat, title in self._history.titles():
            why = tr("It is on screen.") if chat == here else ""
            yield Command(
                f"chat {chat}", title, partial(self._window.open_chat, chat), tr("Chat"), refused=why, quiet=True
            )

    def _show(self, page: int, then: Callable[[], object]) -> None:
        """Show something of a page, which may be made only when it is shown."""
        self._window.show_page(page)
        then()


def _values(spec: OptionSpec) -> list[Value]:
    """Values that have a name; numbers are typed in the panel."""
    return [True, False] if spec.kind == "bool" else [*spec.titles] if spec.kind == "choice" else []

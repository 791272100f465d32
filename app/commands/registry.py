"""The registry of all commands: the shortcuts, the palette and the list of shortcuts are made from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

from app.commands.keymap import Keymap
from app.language import code, english
from app.settings.store import SettingsStore
from app.shortcuts import TABLE
from app.theme.widgets import tip

RECENT = 12
"""Number of commands run last that are remembered."""
_PARTS = re.compile(r"(: |…$)")
"""Between the parts of a command's words that are texts of their own."""


class Command(NamedTuple):
    """One thing that the person can have done."""

    name: str
    """Name under which it is remembered; of those of the table the action."""
    title: str
    run: Callable[[], object]
    group: str = ""
    """Words that stand before the title."""
    keys: str = ""
    """Keys as this system writes them."""
    refused: str = ""
    """Reason it cannot be done now; "" if it can."""
    quiet: bool = False
    """True if only a search shows it: there are many of its kind."""

    @property
    def words(self) -> str:
        """Group and title, in which a search looks."""
        return f"{self.group}: {self.title}" if self.group else self.title

    @property
    def english(self) -> str:
        """The same in English, by which a person may know it whatever the window's language."""
        return self.words if code() == "en" else "".join(map(english, _PARTS.split(self.words)))


class Commands(QObject):
    """Commands of the table with the functions of ``window``, and those of ``sources``, which are asked whenever all
    are wanted."""

    def __init__(self, store: SettingsStore, window: QWidget) -> None:
        super().__init__(window)
        self._store, self._window = store, window
        self.keymap = Keymap(TABLE, store, self)
        self.sources: list[Callable[[], Iterable[Command]]] = []
        self.shortcuts: list[QShortcut] = []
        """One for each command that has keys."""
        self._actions: Mapping[str, Callable[[], object]] = {}
        self._refusals: Mapping[str, Callable[[], str]] = {}
        self._tips: list[tuple[QWidget, str, str]] = []
        self.keymap.changed.connect(self._bind)

    def give(
        self, actions: Mapping[str, Callable[[], object]], refusals: Mapping[str, Callable[[], str]] | None = None
    ) -> None:
        """Set the functions of the table's commands, and of some what returns the reason they cannot be done now.

        Raises KeyError when one has none.
        """
        self._actions, self._refusals = actions, refusals or {}
        self._bind()

    def explain(self, widget: QWidget, action: str, words: str) -> None:
        """Tooltip of a widget that does what a command does: ``words`` and its keys, whichever those are."""
        self._tips.append((widget, action, words))
        widget.setToolTip(tip(self.keymap.explained(action, words)))

    def all(self) -> list[Command]:
        """All commands, those of the table first."""
        own = [
            Command(
                entry.action,
                entry.words,
                self._actions[entry.action],
                keys=self.keymap.shown(entry.action),
                refused=self._refusals.get(entry.action, str)(),
            )
            for entry in TABLE
            if entry.action and entry.offered
        ]
        return [*own, *(command for source in self.sources for command in source())]

    @property
    def recent(self) -> list[str]:
        """Names of the commands that were run last, the last one first."""
        return self._store.settings.commands

    def run(self, command: Command) -> None:
        """Do it, and remember that."""
        others = [name for name in self.recent if name != command.name]
        self._store.update(commands=[command.name, *others][:RECENT])
        command.run()

    def _bind(self) -> None:
        for shortcut in self.shortcuts:
            shortcut.setEnabled(False)
            shortcut.deleteLater()
        self.shortcuts = []
        for action in dict.fromkeys(entry.action for entry in TABLE if entry.action):
            run = self._actions[action]
            if keys := self.keymap.keys(action):
                shortcut = QShortcut(self._window)
                shortcut.setKeys([QKeySequence(each) for each in keys])
                shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
                shortcut.activated.connect(run)
                self.shortcuts.append(shortcut)
        for widget, action, words in self._tips:
            widget.setToolTip(tip(self.keymap.explained(action, words)))

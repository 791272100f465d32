"""The keys of each command: those of the table, and those that the person chose in their place. No widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QKeySequence

from app.language import tr
from app.settings.store import SettingsStore
from app.shortcuts import Shortcut
from app.theme.keys import native, unusable


class Ruling(NamedTuple):
    """Whether keys can be given to a command: not if there is a ``sentence`` that says why. ``holder``: the command
    that has them now and could have others."""

    sentence: str = ""
    holder: Shortcut | None = None


class Keymap(QObject):
    """Keys as portable text, such as "Ctrl+N"; "" for none. What the person changed is kept in the settings.

    Of two commands with the same keys in a settings file the first of the table has them; keys that a later version
    gives to a new command stay with the command that the person gave them to.
    """

    changed = Signal()

    def __init__(self, table: Sequence[Shortcut], store: SettingsStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self.table = tuple(table)
        self._entries = {entry.action: entry for entry in table if entry.action}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._settle()
        store.changed.connect(self._on_changed)

    def keys(self, action: str) -> tuple[str, ...]:
        """All keys of a command, the one that is shown first. Raises KeyError for one that is not in the table."""
        return self._keys[action]

    def shown(self, action: str) -> str:
        """Keys of a command as this system writes them; "" for none."""
        keys = self.keys(action)
        return native(keys[0]) if keys else ""

    def explained(self, action: str, words: str) -> str:
        """``words`` with the command's keys in brackets, for a tooltip."""
        shown = self.shown(action)
        return f"{words} ({shown})" if shown else words

    def is_changed(self, action: str) -> bool:
        """True if the person chose other keys than the table has."""
        return action in self._store.settings.keys

    @property
    def any_changed(self) -> bool:
        return any(map(self.is_changed, self._entries))

    def ruling(self, action: str, keys: str) -> Ruling:
        """Rule on keys that the person wants for a command."""
        if not keys or keys in self.keys(action):
            return Ruling()
        for entry in self.table:
            if not entry.action and _same(entry.keys, keys):
                return Ruling(
                    tr("{keys} is “{command}” and cannot be changed.", keys=native(keys), command=entry.words)
                )
        if why := unusable(keys):
            return Ruling(why)
        for other, held in self._keys.items():
            if any(_same(keys, each) for each in held):
                entry = self._entries[other]
                return Ruling(tr("{keys} is “{command}”.", keys=native(keys), command=entry.words), entry)
        return Ruling()

    def choose(self, action: str, keys: str) -> None:
        """Give a command other keys, "" for none; those of its table entry are no change. Nobody else may have them."""
        self._put({action: keys})

    def swap(self, action: str, keys: str, holder: str) -> None:
        """Give a command the keys of another, which has that command's from now on."""
        mine = self.keys(action)
        self._put({action: keys, holder: mine[0] if mine else ""})

    def default(self, action: str) -> str:
        return self._entries[action].keys

    def reset_all(self) -> None:
        """Every command has the keys of the table again. Keys of commands that this version does not know are kept."""
        kept = {action: keys for action, keys in self._store.settings.keys.items() if action not in self._entries}
        self._store.update(keys=kept)

    def _put(self, chosen: dict[str, str]) -> None:
        merged = {**self._store.settings.keys, **chosen}
        for action, keys in chosen.items():
            if _same(keys, self.default(action)) or keys == self.default(action):
                del merged[action]
        self._store.update(keys=merged)

    def _on_changed(self, names: frozenset[str]) -> None:
        if "keys" in names:
            self._settle()
            self.changed.emit()

    def _settle(self) -> None:
        """Keys in force."""
        own = self._store.settings.keys
        chosen: dict[str, tuple[str, ...]] = {}
        taken = {_portable(entry.keys) for entry in self.table if not entry.action}
        for action in self._entries:
            keys = _portable(own.get(action, ""))
            if keys and keys not in taken and not unusable(keys):
                chosen[action] = (keys,)
                taken.add(keys)
            elif action in own:
                chosen[action] = ()
        self._keys = {}
        for action, entry in self._entries.items():
            usual = [keys for keys in (entry.keys, *entry.also) if keys and _portable(keys) not in taken]
            self._keys[action] = chosen.get(action, tuple(usual))


def _portable(keys: str) -> str:
    return QKeySequence(keys).toString()


def _same(one: str, other: str) -> bool:
    return bool(_portable(one)) and _portable(one) == _portable(other)

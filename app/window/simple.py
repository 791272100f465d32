"""Simple mode: what measures and explains is hidden, and each way to it says how to bring it back. No widget is made
here."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.language import tr
from app.notice import NoticeBar
from app.settings.store import SettingsStore

_TOPIC = "simple"
ON = tr("Simple mode is on: the optimisations, the plots, the cache, the Lab and the server are hidden.")
HIDDEN = tr("Simple mode hides that.")
SHOW = tr("Show everything")


class SimpleMode(QObject):
    """Follows the setting; ``changed`` tells of it."""

    changed = Signal()

    def __init__(self, store: SettingsStore, notice: NoticeBar) -> None:
        super().__init__(notice)
        self._store, self._notice = store, notice
        store.changed.connect(self._on_changed)

    @property
    def on(self) -> bool:
        return self._store.settings.simple

    def refusal(self) -> str:
        """Reason, as a sentence, that what is hidden cannot be shown; "" if nothing is."""
        return HIDDEN if self.on else ""

    def unless_hidden(self, act: Callable[[], object]) -> Callable[[], None]:
        """Do something of a part that simple mode hides: while it does, offer to show everything instead."""

        def do() -> None:
            if self.on:
                self._say(HIDDEN)
            else:
                act()

        return do

    def _say(self, sentence: str) -> None:
        self._notice.say(sentence, topic=_TOPIC, action=SHOW, act=lambda: self._store.update(simple=False))

    def _on_changed(self, names: frozenset[str]) -> None:
        if "simple" not in names:
            return
        self.changed.emit()
        if self.on:
            self._say(ON)
        else:
            self._notice.clear(_TOPIC)

"""A calm line below the top bar or above the composer: what happened and what to do, closed by the person or by good
news."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QWidget

from app.theme.banner import Banner, Tone
from app.theme.theme import Theme


class NoticeBar(Banner):
    """Shows one sentence at a time, the newest; ``topic`` lets whoever showed it take it away again."""

    changed = Signal()
    """It has another sentence, or none any more."""
    _waits = False
    """True if its sentence gives way to another bar's."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(theme, name, parent)
        self._topic = ""
        self._act: Callable[[], object] | None = None
        self._act_otherwise: Callable[[], object] | None = None
        self._action.clicked.connect(lambda: self._do(self._act))
        self._other.clicked.connect(lambda: self._do(self._act_otherwise))

    def say(
        self,
        text: str,
        tone: Tone = "notice",
        topic: str = "",
        action: str = "",
        act: Callable[[], object] | None = None,
        other: tuple[str, Callable[[], object]] | None = None,
    ) -> None:
        """Show ``text``; ``action`` names a button that calls ``act``, ``other`` is one more and what it calls."""
        title, self._act_otherwise = other if other is not None else ("", None)
        self._topic, self._act, self._waits = topic, act, False
        self.show_words(text, tone, action, title)
        self.changed.emit()

    @property
    def text(self) -> str:
        """Its sentence, also while that gives way; "" for none."""
        return self._label.text() if self._waits else super().text

    def give_way(self, waits: bool) -> None:
        """Show its sentence later, or now."""
        if self.text and waits != self._waits:
            self._waits = waits
            self.setVisible(not waits)

    def shows(self, topic: str) -> bool:
        """True if the sentence on show is of that topic."""
        return self._topic == topic and bool(self.text)

    def clear(self, topic: str = "") -> None:
        """Hide the bar; with a topic only when that topic is on show."""
        if topic and topic != self._topic:
            return
        self._waits = False
        self.hide()
        self.changed.emit()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        if not self.text:  # closed by the person
            self.changed.emit()

    def _do(self, act: Callable[[], object] | None) -> None:
        self.hide()
        if act is not None:
            act()


class TakeTurns(QObject):
    """Turns of two bars that may be on show together: only the one that spoke last is shown, and the other comes back
    after it. ``together``: returns True if both are on the page that is shown now."""

    def __init__(self, first: NoticeBar, second: NoticeBar, together: Callable[[], bool]) -> None:
        super().__init__(first)
        self._bars, self._together = (first, second), together
        self._last = first
        self._settling = False
        for bar in self._bars:
            bar.changed.connect(lambda bar=bar: self._on_changed(bar))

    def _on_changed(self, bar: NoticeBar) -> None:
        if bar.text and not self._settling:
            self._last = bar
        self.settle()

    def settle(self) -> None:
        """Another page may be on show."""
        if self._settling:
            return
        self._settling = True
        both = all(bar.text for bar in self._bars) and self._together()
        for bar in self._bars:
            bar.give_way(both and bar is not self._last)
        self._settling = False

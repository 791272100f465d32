"""A calm line below the top bar or above the composer: what happened and what to do, closed by the person or by good
news."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QWidget

from app.theme.banner import Banner, Tone
from app.theme.theme import Theme


class NoticeBar(Banner):
    """Shows one sentence at a time, the newest; ``topic`` lets whoever showed it take it away again."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(theme, name, parent)
        self._topic = ""
        self._act: Callable[[], None] | None = None
        self._action.clicked.connect(self._do)

    def say(
        self, text: str, tone: Tone = "notice", topic: str = "", action: str = "", act: Callable[[], None] | None = None
    ) -> None:
        """Show ``text``; ``action`` names a button that calls ``act``."""
        self._topic, self._act = topic, act
        self.show_words(text, tone, action)

    def shows(self, topic: str) -> bool:
        """Whether the sentence on show is of that topic."""
        return self._topic == topic and not self.isHidden()

    def clear(self, topic: str = "") -> None:
        """Hide the bar; with a topic only when that topic is on show."""
        if topic and topic != self._topic:
            return
        self.hide()

    def _do(self) -> None:
        self.hide()
        if self._act is not None:
            self._act()

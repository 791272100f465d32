"""Asks the engine, a moment after each change, how many tokens the next prompt would take."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

from app.chat.context_bar import ContextBar
from app.link.link import EngineLink, LinkState
from engine import protocol

COUNT_MS = 300
_ID = "count-"


class ContextCounter(QObject):
    """``prompt`` gives the conversation to count and how it is to be rendered; the answer goes to ``bar``."""

    def __init__(
        self,
        link: EngineLink,
        bar: ContextBar,
        prompt: Callable[[], tuple[list[protocol.ChatMessage], protocol.Thinking]],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._bar, self._prompt = link, bar, prompt
        self._asked = 0
        self._tokens: int | None = None
        self._timer = QTimer(self, singleShot=True, interval=COUNT_MS)
        self._timer.setObjectName("count-timer")
        self._timer.timeout.connect(self._ask)
        link.counted.connect(self._on_counted)
        for signal in (link.welcomed, link.loaded, link.unloaded):
            signal.connect(self._show)

    def ask_soon(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    def know(self, tokens: int | None) -> None:
        """The count from elsewhere (a finished answer's usage); None when it is not known any more."""
        self._asked += 1  # an answer still on its way is of an older prompt
        self._tokens = tokens
        self._show()

    def _ask(self) -> None:
        if self._link.card is None or self._link.state is not LinkState.CONNECTED:
            return
        prompt, thinking = self._prompt()
        if not prompt:
            self.know(0)
            return
        self._asked += 1
        self._link.send(protocol.CountTokens(id=f"{_ID}{self._asked}", prompt=prompt, thinking=thinking))

    def _on_counted(self, message: protocol.Counted) -> None:
        if message.id == f"{_ID}{self._asked}":
            self._tokens = message.tokens
            self._show()

    def _show(self, *_: object) -> None:
        card = self._link.card
        self._bar.show_tokens(self._tokens, card.context if card is not None else 0)

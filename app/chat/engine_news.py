"""Says above the composer that the engine died and that it is back; all else that is said there goes through here."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.chat.notice import Notice
from app.link.link import RESTARTS, EngineLink, LinkState

REVIVE = "revive"


class EngineNews(QObject):
    """Good news after a death takes the place of the bad, and still says what happened."""

    def __init__(self, link: EngineLink, notice: Notice, parent: QObject) -> None:
        super().__init__(parent)
        self._link, self._notice = link, notice
        self._shown = False
        self._death = ""
        notice.acted.connect(self._on_notice)
        link.state_changed.connect(self._on_state)
        link.loaded.connect(lambda _: self._tell_return("It is running again and the model is loaded."))

    def say(self, sentence: str, bad: bool = False, action: str = "", title: str = "") -> None:
        """Something else than the engine's death or return."""
        self._shown = False
        self._notice.say(sentence, bad, action, title)

    def dismiss(self) -> None:
        self._shown = False
        self._notice.dismiss()

    def _on_state(self, state: LinkState, sentence: str) -> None:
        if state in (LinkState.RESTARTING, LinkState.DEAD):
            dead = state is LinkState.DEAD
            self._notice.say(sentence, True, REVIVE if dead else "", "Start the engine" if dead else "")
            self._shown = True
            self._death = sentence.removesuffix(RESTARTS)
        elif state is LinkState.CONNECTED:
            gone = "" if self._link.knows_model else " The model was not loaded again: choose one above."
            self._tell_return(f"It is running again.{gone}")

    def _tell_return(self, words: str) -> None:
        if self._shown:
            self._notice.say(f"{self._death} {words}")

    def _on_notice(self, action: str) -> None:
        if action == REVIVE:
            self.dismiss()
            self._link.revive()

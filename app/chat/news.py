"""Says above the composer that the engine died and that it is back; all else that is said there goes through here."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from app.history.store import HistoryStore
from app.link.link import RESTARTS, EngineLink, LinkState
from app.notice import NoticeBar
from engine import protocol

_MODEL, _SWITCH = "model", "switch"
_SWITCH_CODE = "bad_option"


class News(QObject):
    """Good news after a death takes the place of the bad, and still says what happened."""

    def __init__(self, link: EngineLink, history: HistoryStore, notice: NoticeBar, parent: QObject) -> None:
        super().__init__(parent)
        self._link, self._notice = link, notice
        self._shown = False
        """Whether the engine's death was said, and not yet that its model is back."""
        self._death = ""
        self._about = ("", "")
        """What the last report was about, and its sentence."""
        self._lost = ""
        """What the history could not save, as it said."""
        link.state_changed.connect(self._on_state)
        link.failed.connect(self._on_failed)
        link.load_asked.connect(lambda _: self._settle(_MODEL, _SWITCH))
        link.loaded.connect(lambda _: self._settle(_MODEL, _SWITCH))
        link.loaded.connect(self._on_loaded)
        link.unloaded.connect(lambda _: self._settle(_MODEL))
        link.options.connect(lambda _: self._settle(_SWITCH))
        history.failed.connect(self._on_lost)
        history.recovered.connect(lambda: self.forget(self._lost))
        if history.notice:
            self.complain(history.notice)

    def say(self, sentence: str, bad: bool = False, action: str = "", act: Callable[[], None] | None = None) -> None:
        """Something else than the engine's death or return; ``action`` names a button that calls ``act``."""
        self._shown, self._about = False, ("", "")
        self._notice.say(sentence, "bad" if bad else "notice", action=action, act=act)

    def complain(self, sentence: str) -> None:
        """Something that went wrong, or is refused."""
        self.say(sentence, bad=True)

    def forget(self, sentence: str) -> None:
        """What was said in exactly these words is no longer so."""
        if sentence and self._notice.text == sentence:
            self.dismiss()

    def dismiss(self) -> None:
        self._shown = False
        self._notice.clear()

    def _on_failed(self, error: protocol.Error) -> None:
        """A load or a switch that was refused: said until that is no longer so."""
        if not error.id:
            self.complain(error.message)
            self._about = (_SWITCH if error.code == _SWITCH_CODE else _MODEL, error.message)

    def _on_lost(self, sentence: str) -> None:
        self._lost = sentence
        self.complain(sentence)

    def _settle(self, *topics: str) -> None:
        topic, sentence = self._about
        if topic in topics:
            self.forget(sentence)
            self._about = ("", "")

    def _on_state(self, state: LinkState, sentence: str) -> None:
        if state in (LinkState.RESTARTING, LinkState.DEAD):
            action = "Start the engine" if state is LinkState.DEAD else ""
            self._notice.say(sentence, "bad", action=action, act=self._revive)
            self._shown = True
            self._death = sentence.removesuffix(RESTARTS)
        elif state is LinkState.STARTING and self._death and self._notice.text.startswith(self._death):
            self.dismiss()
        elif state is LinkState.CONNECTED:
            gone = "" if self._link.knows_model else " The model was not loaded again: choose one above."
            self._tell_return(f"It is running again.{gone}")

    def _on_loaded(self, _: protocol.Loaded) -> None:
        self._tell_return("It is running again and the model is loaded.")
        self._shown = False

    def _tell_return(self, words: str) -> None:
        self._shown = self._shown and bool(self._notice.text)  # else the person closed it
        if self._shown:
            self._notice.say(f"{self._death} {words}")

    def _revive(self) -> None:
        self.dismiss()
        self._link.revive()

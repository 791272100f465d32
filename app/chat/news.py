"""Says above the composer that the engine died and that it is back, and what could not be saved; all else that is said
there goes through here."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.history.store import HistoryStore
from app.language import tr
from app.link.link import RESTARTS, EngineLink, LinkState
from app.notice import NoticeBar
from app.theme.banner import Tone
from engine import protocol

_MODEL, _SWITCH = "model", "switch"
_SWITCH_CODE = "bad_option"


class News(QObject):
    """Good news after a death takes the place of the bad, and still says what happened.

    That something could not be saved stands before all else until it is saved, or the person closes it.
    """

    export_asked = Signal()
    """The person wants what could not be saved as a file."""

    def __init__(self, link: EngineLink, history: HistoryStore, notice: NoticeBar, parent: QObject) -> None:
        super().__init__(parent)
        self._link, self._notice = link, notice
        self._shown = False
        """True if the engine's death was said, and not yet that its model is back."""
        self._death = ""
        self._about = ("", "")
        """Topic of the last report, and its sentence."""
        self._said: tuple[str, Tone, str, Callable[[], None] | None] = ("", "notice", "", None)
        """Message on show besides the loss: the sentence, its tone, the name of a button and what that does."""
        self._lost = ""
        """Reason the history could not be saved, as it said."""
        link.state_changed.connect(self._on_state)
        link.failed.connect(self._on_failed)
        link.load_asked.connect(lambda _: self._settle(_MODEL, _SWITCH))
        link.loaded.connect(lambda _: self._settle(_MODEL, _SWITCH))
        link.loaded.connect(self._on_loaded)
        link.unloaded.connect(lambda _: self._settle(_MODEL))
        link.options.connect(lambda _: self._settle(_SWITCH))
        history.failed.connect(self._on_lost)
        history.unreadable.connect(self.complain)
        history.recovered.connect(lambda: self._on_lost(""))
        if history.notice:
            self.complain(history.notice)

    def say(self, sentence: str, bad: bool = False, action: str = "", act: Callable[[], None] | None = None) -> None:
        """Something else than the engine's death or return; ``action`` names a button that calls ``act``."""
        self._shown, self._about = False, ("", "")
        self._say(sentence, "bad" if bad else "notice", action, act)

    def complain(self, sentence: str) -> None:
        """Something that went wrong, or is refused."""
        self.say(sentence, bad=True)

    def forget(self, sentence: str) -> None:
        """Dismiss the message if it stands there in exactly these words, which no longer hold."""
        if sentence and self._standing == sentence:
            self.dismiss()

    def dismiss(self) -> None:
        self._shown = False
        self._say("")

    @property
    def _standing(self) -> str:
        """The sentence that stands there, apart from what could not be saved; "" once the person closed it."""
        return self._said[0] if self._notice.text else ""

    def _say(
        self, sentence: str, tone: Tone = "notice", action: str = "", act: Callable[[], None] | None = None
    ) -> None:
        self._said = (sentence, tone, action, act)
        if not self._lost:
            self._notice.say(sentence, tone, action=action, act=act) if sentence else self._notice.clear()
            return
        if not action:
            action, act = tr("Save elsewhere…"), self._export
        self._notice.say(f"{self._lost} {sentence}".strip(), "bad", action=action, act=act)

    def _export(self) -> None:
        self._say(*self._said)  # a notice is gone with its button, and this one stays
        self.export_asked.emit()

    def _on_failed(self, error: protocol.Error) -> None:
        """A load or a switch that was refused: said until that is no longer so."""
        if not error.id:
            self.complain(error.message)
            self._about = (_SWITCH if error.code == _SWITCH_CODE else _MODEL, error.message)

    def _on_lost(self, sentence: str) -> None:
        """Note the reason the history could not be saved; "" when it is."""
        said = self._said if self._standing else ("", "notice", "", None)
        self._lost = sentence
        self._say(*said)

    def _settle(self, *topics: str) -> None:
        topic, sentence = self._about
        if topic in topics:
            self.forget(sentence)
            self._about = ("", "")

    def _on_state(self, state: LinkState, sentence: str) -> None:
        if state in (LinkState.RESTARTING, LinkState.DEAD):
            action = tr("Start the engine") if state is LinkState.DEAD else ""
            self._say(sentence, "bad", action, self._revive)
            self._shown = True
            self._death = sentence.removesuffix(RESTARTS)
        elif state is LinkState.STARTING and self._death and self._standing.startswith(self._death):
            self.dismiss()
        elif state is LinkState.CONNECTED:
            gone = "" if self._link.knows_model else tr("The model was not loaded again: choose one above.")
            self._tell_return(f"{tr('It is running again.')} {gone}".rstrip())

    def _on_loaded(self, _: protocol.Loaded) -> None:
        self._tell_return(tr("It is running again and the model is loaded."))
        self._shown = False

    def _tell_return(self, words: str) -> None:
        self._shown = self._shown and bool(self._standing)  # else the person closed it
        if self._shown:
            self._say(f"{self._death} {words}")

    def _revive(self) -> None:
        self.dismiss()
        self._link.revive()

"""Work under way in the window that would be spoilt or lost: asked about before that happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from PySide6.QtCore import QObject

from app.chat.page import ChatPage
from app.language import tr
from app.notice import NoticeBar
from app.window.wirings.measure import MeasureWiring

ANSWER = tr("An answer is being written")
SWITCH = tr("A switch is being measured")
LAB = tr("The Lab is measuring")
_SPOILS = "spoils"


class BusyLab(Protocol):
    """Part of the Lab, seen only by whether it runs."""

    @property
    def running(self) -> str | bool: ...


class Busy(QObject):
    """Lives as long as the window. ``lab`` gives the Lab's parts, none before it is first shown.

    An answer that is asked for during a measurement of the panel is written when the person says so, or waits for its
    end; the engine gives none before a run of the Lab is over.
    """

    def __init__(self, chat: ChatPage, measuring: MeasureWiring, parent: QObject) -> None:
        super().__init__(parent)
        self._chat, self._measuring = chat, measuring
        self.lab: Callable[[], Iterator[BusyLab]] = lambda: iter(())
        chat.sending.guard = self._before_answer
        chat.sending.measures = lambda: self._lab_runs or measuring.comparing
        chat.session.opened.connect(lambda: chat.notice.clear(_SPOILS))  # what was asked about is in another chat
        measuring.changed.connect(self.settle)

    def ends(self) -> str:
        """Work that a load of a model would end, as a sentence without its full stop, or ""; a run of the Lab it lets
        end first."""
        if self._chat.answers.busy:
            return ANSWER
        return SWITCH if self._measuring.measuring else ""

    def lost(self) -> list[str]:
        """Work that the program's end would end, each as a sentence."""
        found = [ANSWER] * self._chat.answers.busy + [SWITCH] * self._measuring.measuring + [LAB] * self._lab_runs
        return [f"{each}." for each in found]

    @property
    def measures(self) -> bool:
        """True if anything is measured on this machine."""
        return self._measuring.measuring or self._lab_runs

    @property
    def _lab_runs(self) -> bool:
        return any(part.running for part in self.lab())

    def settle(self) -> None:
        """Something that was under way may be over, and what waited for that goes on; or something has begun."""
        self._chat.titles.settle()
        if self._lab_runs or self._measuring.comparing:
            return
        self._chat.notice.clear(_SPOILS)
        self._chat.sending.release()

    def _before_answer(self, ask: Callable[[], object], wait: Callable[[], object] | None) -> None:
        """``ask`` asks for an answer now, ``wait`` when nothing is measured any more; None where that cannot be."""
        if self._lab_runs:
            (wait or ask)()
            return
        notice: NoticeBar = self._chat.notice
        if not self._measuring.comparing:
            ask()
            return
        other = (tr("Wait"), wait) if wait is not None else None
        words = tr("A switch is being measured; an answer now spoils it.")
        notice.say(words, topic=_SPOILS, action=tr("Ask anyway"), act=ask, other=other)

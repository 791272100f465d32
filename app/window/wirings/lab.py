"""Connects the Lab to the window: when nothing may run, with which models, what chats use. No widget is made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.chat.page import ChatPage
from app.chat.welcome import BUNDLED
from app.lab import words
from app.lab.page import LabView
from app.lab.runs import LabRuns, Subject
from app.language import known
from app.link.link import EngineLink
from app.link.switches import reason
from app.models.state.library import ModelLibrary
from app.panel.controls import value_title
from app.panel.panel import OptimisationPanel
from app.window.wirings.measure import MeasureWiring
from engine import protocol

if TYPE_CHECKING:
    from app.lab.compare.page import ComparePage

_LATER = "later"
PROMPTS = 4
"""The last messages of a chat that a comparison may take."""


class LabWiring(QObject):
    """Lives as long as the window."""

    def __init__(
        self,
        link: EngineLink,
        runs: LabRuns,
        view: LabView,
        panel: OptimisationPanel,
        chat: ChatPage,
        measuring: MeasureWiring,
        library: ModelLibrary,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._runs, self._view, self._panel = link, runs, view, panel
        self._chat, self._measuring = chat, measuring
        self._library = library
        view.compare_made.connect(self._on_compare)
        view.use = self._use
        for asked in (link.load_asked, panel.value_changed):
            asked.connect(self._on_asked)
        for changed in (link.unloaded, link.loaded, link.welcomed, link.state_changed):
            changed.connect(self._show_own)
        answers = chat.answers
        for changed in (answers.waiting, answers.grown, answers.ended, answers.refused, answers.counted):
            changed.connect(self._show_blocked)
        for changed in (measuring.changed, link.failed, link.state_changed, chat.loads.changed):
            changed.connect(self._show_blocked)
        runs.changed.connect(self._show_taken)
        self._show_own()
        self._show_blocked()

    def _on_compare(self, compare: ComparePage) -> None:
        """The page Compare was made."""
        link, library, chat = self._link, self._library, self._chat
        link.options.connect(lambda message: compare.columns.set_catalogue(message.catalogue))
        for changed in (link.welcomed, link.loaded, library.stored_changed, library.remotes.changed):
            changed.connect(self._tell_compare)
        compare.shown.connect(library.remotes.refresh)
        chat.prompt_changed.connect(self._tell_prompts)
        chat.chat_changed.connect(self._tell_prompts)
        compare.changed.connect(self._show_taken)
        self._tell_compare()
        self._tell_prompts()

    def _tell_compare(self, *_: object) -> None:
        """The models that there are, and the switches."""
        welcome, card = self._link.welcome, self._link.card
        if welcome is None:
            return
        models = {model.path: model for model in welcome.models}
        stored = [(each.name, each.path) for each in self._library.stored if not (each.missing or each.bundled)]
        for name, path in [*stored, *([(card.name, card.path)] if card is not None else [])]:
            models.setdefault(path, protocol.KnownModel(name=name, path=path))
        self._view.compare.columns.set_models(list(models.values()), self._library.remotes.offered)
        self._view.compare.columns.set_catalogue(self._link.catalogue)

    def _tell_prompts(self, *_: object) -> None:
        """Tell the comparison the prompts that the person sent in the chat on screen."""
        prompt = self._chat.last_prompt()
        sent = [message.content for message in prompt[0] if message.role == "user"] if prompt is not None else []
        self._view.compare.set_prompts(sent[-PROMPTS:])

    def _show_own(self, *_: object) -> None:
        """The model of the person that can be chosen."""
        card, order = self._link.card, self._link.last_load
        if card is None or card.name == BUNDLED:
            self._view.models.set_own(None)
        else:
            order = order or protocol.Load(model=card.path)
            self._view.models.set_own(Subject(card.name, card.path, order.draft, order.options))

    @property
    def _busy(self) -> bool:
        """True if anything of the Lab runs."""
        return bool(self._runs.running) or self._view.comparing

    def _on_asked(self, *_: object) -> None:
        """Say that what changes the engine waits for the end of a run."""
        if self._busy:
            self._chat.notice.say(words.LATER, topic=_LATER)

    def _show_taken(self) -> None:
        self._measuring.set_taken(words.TAKEN if self._busy else "")
        if not self._busy:
            self._chat.notice.clear(_LATER)

    def _show_blocked(self, *_: object) -> None:
        if self._chat.loads.loading is not None:
            blocked = words.LOADING
        else:
            answering = self._chat.answers.busy and not self._busy  # what is asked during a run waits for its end
            blocked = words.BUSY if answering else words.MEASURING if self._measuring.measuring else ""
        self._view.set_blocked(blocked)

    def _use(self, values: Mapping[str, protocol.Value]) -> str:
        """Set switches as the panel does, all or none; what came of it."""
        told = []
        for key, value in values.items():
            spec = self._panel.spec(key)
            if spec is None:
                return words.NO_SWITCH
            if why := reason(spec, value):
                return f"{known(spec.title)}: {known(why)}"
            told.append((spec, value))
        if all(spec.value == value for spec, value in told):
            return words.USED_ALREADY
        for spec, value in told:
            self._panel.value_changed.emit(spec.key, value)
        return words.used([f"{known(spec.title)}: {value_title(spec, value)}" for spec, value in told])

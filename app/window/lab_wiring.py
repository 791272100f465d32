"""Connects the Lab to the engine: who has the memory, when nothing may run, what chats use. No widget is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject

from app.chat.page import ChatPage
from app.chat.welcome import BUNDLED
from app.lab import words
from app.lab.page import LabView
from app.lab.roofline import NAME as ROOFLINE
from app.lab.runs import LabRuns, Subject
from app.link.link import EngineLink, LinkState
from app.link.switches import reason
from app.models.library import Library
from app.panel.controls import value_title
from app.panel.panel import OptimisationPanel
from app.window.measure_wiring import MeasureWiring
from engine import protocol

PROMPTS = 4
"""The last messages of a chat that a comparison may take."""


class LabWiring(QObject):
    """Lives as long as the window. For an experiment with the person's own model the engine gives its memory back: the
    model is unloaded before and loaded again after, however that ends."""

    def __init__(
        self,
        link: EngineLink,
        runs: LabRuns,
        view: LabView,
        panel: OptimisationPanel,
        chat: ChatPage,
        measuring: MeasureWiring,
        library: Library,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._runs, self._view, self._panel = link, runs, view, panel
        self._chat, self._answers, self._measuring = chat, chat.answers, measuring
        self._library = library
        self._lent: protocol.Load | None = None
        """Message that loads the model again that was unloaded for the Lab."""
        self._adapters: list[protocol.AdapterCard] = []
        """The LoRA adapters that it had."""
        self._returning = False
        """True while it is being loaded again."""
        self._go: Callable[[str], None] | None = None
        """Run that waits for the engine's memory."""
        self._disturbed = False
        runs.prepare = self._prepare
        runs.done.connect(self._on_done)
        compare = view.compare
        compare.comparison.prepare = lambda own, go: self._prepare(Subject(own=own), go)
        compare.done.connect(self._on_done)
        link.options.connect(lambda message: compare.set_catalogue(message.catalogue))
        for changed in (link.welcomed, link.loaded, library.stored_changed):
            changed.connect(self._tell_compare)
        chat.prompt_changed.connect(self._tell_prompts)
        chat.chat_changed.connect(self._tell_prompts)
        runs.results_changed.connect(self._on_result)
        runs.roofline_changed.connect(lambda: self._on_result(ROOFLINE))
        view.use = self._use
        link.unloaded.connect(self._on_unloaded)
        link.loaded.connect(self._on_loaded)
        link.welcomed.connect(self._show_own)
        link.load_asked.connect(self._on_load_asked)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)
        answers = chat.answers
        for changed in (answers.waiting, answers.grown, answers.ended, answers.refused, answers.counted):
            changed.connect(self._on_answers)
        for changed in (measuring.changed, link.failed, chat.header.loading_changed):
            changed.connect(self._show_blocked)
        for changed in (runs.changed, compare.changed):
            changed.connect(self._show_taken)
        self._show_own()
        self._show_blocked()
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
        self._view.compare.set_models(list(models.values()))
        self._view.compare.set_catalogue(self._link.catalogue)

    def _tell_prompts(self, *_: object) -> None:
        """Tell the comparison the prompts that the person sent in the chat on screen."""
        prompt = self._chat.last_prompt()
        sent = [message.content for message in prompt[0] if message.role == "user"] if prompt is not None else []
        self._view.compare.set_prompts(sent[-PROMPTS:])

    def _prepare(self, subject: Subject, go: Callable[[str], None]) -> None:
        self._disturbed = False
        self._view.compare.set_disturbed(False)
        card = self._link.card
        if not subject.own or card is None or self._link.idle:
            go("")
        elif self._answers.busy:  # it would end here
            go(words.BUSY)
        else:
            self._go = go
            self._adapters = self._link.adapters
            self._lend(self._link.last_load or protocol.Load(model=card.path))
            self._link.send(protocol.Unload(reason=words.lent(card.name)))

    def _lend(self, order: protocol.Load | None) -> None:
        """``order`` loads again what the Lab has for now; None for nothing."""
        self._lent = order
        self._chat.sending.set_lent(order is not None)

    def _on_unloaded(self, *_: object) -> None:
        go, self._go = self._go, None
        if go is not None:
            go("")
        self._show_own()

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED:  # an engine that is gone holds no memory
            self._returning = False
            self._on_unloaded()
        self._show_blocked()

    def _on_done(self) -> None:
        self._go = None
        order = self._lent
        self._lend(None)
        if order is not None:
            self._link.send(order)
            self._returning = self._link.state is LinkState.CONNECTED
            self._show_blocked()

    def _on_load_asked(self, _: protocol.Load) -> None:
        """The person wants a model now: none comes back in its place."""
        self._lend(None)
        self._returning = False

    def _on_loaded(self, _: protocol.Loaded) -> None:
        for adapter in self._adapters if self._returning else ():
            self._link.send(protocol.LoadAdapter(name=adapter.name, path=adapter.path))
        self._returning = False
        self._show_own()
        self._show_blocked()

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id and error.code != "bad_option" and self._returning:
            self._returning = False
            self._show_own()

    def _show_own(self, *_: object) -> None:
        """The model of the person that can be chosen; one that was lent is still theirs."""
        card, order = self._link.card, self._link.last_load
        if self._lent is not None or self._returning:
            return
        if card is None or card.name == BUNDLED:
            self._view.set_own(None)
        else:
            order = order or protocol.Load(model=card.path)
            self._view.set_own(Subject(card.name, card.path, order.draft, True, order.options))

    def _on_answers(self, *_: object) -> None:
        self._disturbed |= self._busy and self._answers.busy
        self._view.compare.set_disturbed(self._disturbed)
        self._show_blocked()

    @property
    def _busy(self) -> bool:
        """True if anything of the Lab runs."""
        return bool(self._runs.running) or self._view.compare.busy

    def _show_taken(self) -> None:
        self._measuring.set_taken(words.TAKEN if self._busy else "")

    def _on_result(self, name: str) -> None:
        result = self._runs.tried.get(name) or self._runs.results.get(name)
        timed = result is None or result.others is not None
        if name == self._runs.running and self._disturbed and timed:
            self._runs.notes[name] = words.DISTURBED

    def _show_blocked(self, *_: object) -> None:
        if self._returning or self._chat.header.loading is not None:
            blocked = words.LOADING
        else:
            blocked = words.BUSY if self._answers.busy else words.MEASURING if self._measuring.measuring else ""
        self._view.set_blocked(blocked)

    def _use(self, values: Mapping[str, protocol.Value]) -> str:
        """Set switches as the panel does, all or none; what came of it."""
        told = []
        for key, value in values.items():
            spec = self._panel.spec(key)
            if spec is None:
                return words.NO_SWITCH
            if why := reason(spec, value):
                return f"{spec.title}: {why}"
            told.append((spec, value))
        if all(spec.value == value for spec, value in told):
            return words.USED_ALREADY
        for spec, value in told:
            self._panel.value_changed.emit(spec.key, value)
        return words.used([f"{spec.title}: {value_title(spec, value)}" for spec, value in told])

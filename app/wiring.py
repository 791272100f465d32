"""Connects the engine's messages to the window's parts and the person's doings to messages. No widget is made here."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, SignalInstance

from app.link.link import EngineLink, LinkState
from app.panel.panel import NO_PROMPT
from app.panel.words import event_label
from app.settings.store import SettingsStore
from app.window import MainWindow
from engine import protocol

_COMPARE = "compare"
_MODEL = "model"
_DRAFT_LENGTH = "draft_length"
_TREE_NODES = "tree_nodes"
_STATE_WORDS = {
    LinkState.STARTING: "Starting the engine",
    LinkState.RESTARTING: "Restarting the engine",
    LinkState.DEAD: "The engine is not running",
}


class Chat(Protocol):
    """What the wiring needs of the chat page."""

    prompt_changed: SignalInstance
    status: SignalInstance
    tint_changed: SignalInstance

    def last_prompt(self) -> tuple[list[protocol.ChatMessage], protocol.Sampling] | None: ...
    def last_thinking(self) -> protocol.Thinking: ...
    def set_tint(self, tint: bool) -> None: ...
    def set_load_options(
        self, provider: Callable[[], protocol.LoadOptions], draft: Callable[[], str | None]
    ) -> None: ...


class Wiring(QObject):
    """Lives as long as the window."""

    def __init__(self, window: MainWindow, chat: Chat, link: EngineLink, store: SettingsStore) -> None:
        super().__init__(window)
        self._window, self._chat, self._link, self._store = window, chat, link, store
        self._panel, self._plots, self._notice = window.panel, window.plots, window.notice
        self._first_load_sent = False
        self._wanted = ""
        """What to load first, in place of the model of last time."""
        self._loads = False
        self._comparison: tuple[str, str] | None = None
        self._model = ""
        self._values: dict[str, protocol.Value] = {}
        self._engine_words = _STATE_WORDS.get(link.state, "")
        self._chat_words = ""
        self._connect_engine()
        self._connect_person()
        self._show_status()
        self._panel.set_tint(store.settings.tint)
        chat.set_tint(store.settings.tint)
        if store.notice:
            self._notice.say(store.notice, topic="settings")

    @property
    def comparing(self) -> bool:
        """Whether a switch is being measured."""
        return self._comparison is not None

    def open(self, model: str) -> None:
        """Load a model that was asked for from outside; before the engine's greeting, as the first one."""
        if self._link.welcome is None:
            self._wanted = model
        else:
            self.load(model)

    def load(self, model: str, draft: str | None = None) -> None:
        """Load with the user's settings. ``draft`` None is the model's own, if settings want one at all."""
        options = self._store.settings.load_options()
        self._link.send(
            protocol.Load(model=model, draft=self._default_draft() if draft is None else draft, options=options)
        )

    def _connect_engine(self) -> None:
        link = self._link
        link.welcomed.connect(self._on_welcome)
        link.options.connect(self._on_options)
        link.loading.connect(self._on_loading)
        link.loaded.connect(self._on_loaded)
        link.unloaded.connect(self._on_unloaded)
        link.telemetry.connect(self._on_telemetry)
        link.compare_progress.connect(self._on_progress)
        link.compared.connect(self._on_compared)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)

    def _connect_person(self) -> None:
        self._panel.value_changed.connect(lambda key, value: self._link.send(protocol.Set(key=key, value=value)))
        self._panel.measure_requested.connect(self._measure)
        for signal in (self._panel.tint_changed, self._chat.tint_changed):
            signal.connect(self._set_tint)
        self._chat.set_load_options(lambda: self._store.settings.load_options(), self._default_draft)
        self._chat.prompt_changed.connect(self._update_measurable)
        self._chat.status.connect(self._on_chat_status)
        self._window.settings_page.reload_requested.connect(self._reload)

    # --- from the engine -------------------------------------------------------------------------------------------

    def _on_welcome(self, message: protocol.Welcome) -> None:
        device = message.device
        self._window.bar.device.setText(f"{device.name} · {device.kind.upper()}")
        self._window.settings_page.set_device(device)
        self._on_options(protocol.Options(catalogue=message.catalogue))
        if message.loaded is not None and not self._wanted:
            self._model = message.loaded.path
        elif not self._first_load_sent:
            self._first_load(message.models)

    def _first_load(self, models: list[protocol.KnownModel]) -> None:
        """The model of last time while it is still there, else the first one the engine knows."""
        self._first_load_sent = True
        wanted, self._wanted = self._wanted or self._store.settings.model, ""
        known = {name for model in models for name in (model.name, model.path)}
        if wanted and (wanted in known or Path(wanted).exists()):
            self.load(wanted)
        elif models:
            self.load(models[0].path or models[0].name)
        else:
            text = "The engine knows no model. Choose a model folder above the transcript."
            self._notice.say(text, topic=_MODEL)

    def _on_options(self, message: protocol.Options) -> None:
        for spec in message.catalogue:
            if spec.key in self._values and self._values[spec.key] != spec.value:
                self._plots.mark(event_label(spec, spec.value))
            self._values[spec.key] = spec.value
        self._panel.set_catalogue(message.catalogue)

    def _on_telemetry(self, frame: protocol.Telemetry) -> None:
        self._plots.add(frame)
        self._window.cache.add(frame)
        lengths = [one.draft_length for one in frame.acceptance if not one.off_reason]
        self._panel.show_live(_DRAFT_LENGTH, f"now {max(lengths)}" if lengths else "")
        trees = [one.tree_nodes for one in frame.acceptance if not one.off_reason and one.tree_nodes > one.draft_length]
        self._panel.show_live(_TREE_NODES, f"now {max(trees)}" if trees else "")

    def _on_loading(self, _: protocol.Loading) -> None:
        self._loads = True

    def _on_loaded(self, message: protocol.Loaded) -> None:
        card = message.card
        self._notice.clear(_MODEL)
        if self._loads:  # else it is the same model with a cache of another kind, which the switch has marked
            self._plots.mark("model loaded")
        self._loads = False
        if card.path != self._model:
            self._panel.clear_results()
        self._model = card.path
        self._store.update(model=self._to_remember(card.path))
        self._update_measurable()

    def _to_remember(self, path: str) -> str:
        """The name of a model in one of Kvasir's folders, which may move, or be another version's next time."""
        models = self._link.welcome.models if self._link.welcome is not None else []
        return next((model.name for model in models if model.path == path), path)

    def _on_unloaded(self, message: protocol.Unloaded) -> None:
        if message.reason:
            self._notice.say(message.reason, topic=_MODEL)
        self._update_measurable()

    def _on_progress(self, message: protocol.CompareProgress) -> None:
        if self._comparison is not None and message.id == self._comparison[0]:
            self._panel.show_progress(self._comparison[1], message)

    def _on_compared(self, message: protocol.Compared) -> None:
        if self._comparison is not None and message.id == self._comparison[0]:
            self._comparison = None
            self._panel.show_result(message)

    def _on_failed(self, error: protocol.Error) -> None:
        """The chat page shows what became of loads, settings and its own requests; here only comparisons."""
        if self._comparison is not None and error.id == self._comparison[0]:
            self._end_comparison()
            self._notice.say(error.message, "bad", topic=_COMPARE)
        elif not error.id:
            # A refused value must not stay on show.
            self._panel.set_catalogue(self._link.catalogue)

    def _on_chat_status(self, words: str) -> None:
        self._chat_words = words
        self._show_status()

    def _show_status(self) -> None:
        self._window.bar.status.setText(self._engine_words or self._chat_words)

    def _on_state(self, state: LinkState, sentence: str) -> None:
        if state is not LinkState.CONNECTED:
            self._end_comparison()
        self._engine_words = "" if state is LinkState.CONNECTED else _STATE_WORDS[state]
        self._show_status()
        self._update_measurable()

    def _default_draft(self) -> str | None:
        """The model's own, or none at all."""
        return None if self._store.settings.draft else ""

    # --- from the person -------------------------------------------------------------------------------------------

    def _set_tint(self, on: bool) -> None:
        self._store.update(tint=on)
        self._panel.set_tint(on)
        self._chat.set_tint(on)

    def _reload(self) -> None:
        card = self._link.card
        if card is None:
            self._notice.say("No model is loaded. Choose one above the transcript.", topic=_MODEL)
            return
        self.load(card.path)

    def _measure(self, key: str) -> None:
        prompt, spec = self._chat.last_prompt(), self._panel.spec(key)
        if prompt is None or spec is None or self._comparison is not None:
            return
        messages, sampling = prompt
        compare = protocol.Compare(
            id=uuid.uuid4().hex,
            key=key,
            prompt=messages,
            sampling=sampling,
            values=compare_values(spec),
            thinking=self._chat.last_thinking(),
        )
        self._comparison = (compare.id, key)
        runs = compare.rounds * len(compare.values)
        self._panel.show_progress(key, protocol.CompareProgress(id=compare.id, done=0, total=runs))
        self._link.send(compare)

    def _end_comparison(self) -> None:
        if self._comparison is not None:
            self._panel.show_progress(self._comparison[1], None)
            self._comparison = None

    def _update_measurable(self) -> None:
        if self._link.state is not LinkState.CONNECTED:
            reason = "The engine is not running."
        elif self._link.card is None:
            reason = "Load a model first."
        else:
            reason = NO_PROMPT if self._chat.last_prompt() is None else ""
        self._panel.set_measurable(reason)


def compare_values(spec: protocol.OptionSpec) -> list[protocol.Value]:
    """The two values to replay: the engine's own pair, but a choice set to a third value takes the place of "on"."""
    if spec.kind == "choice" and spec.compare and spec.value not in spec.compare:
        return [spec.compare[0], spec.value]
    return list(spec.compare)

"""Loads of a model of this machine: the one under way, those that the person asks for, and their drafts. No widgets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.language import tr
from app.link.link import EngineLink, LinkState
from app.models.state.choice import LoadChoice
from engine import protocol


class ModelLoads(QObject):
    """Follows the link by itself; loads go to the link, everything else comes out as signals."""

    changed = Signal()
    """:attr:`loading` says something else."""
    helper_chosen = Signal()
    """The person chose a draft model or heads for the loaded model, which is being loaded with it."""
    draft_chosen = Signal(str, object)
    """The path of the loaded model, and what the person chose to draft for it: a path, "" for nothing, None for its
    own."""

    def __init__(self, link: EngineLink, choice: LoadChoice, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link, self.choice = link, choice
        self._loading: protocol.Loading | None = None
        self._draft: str | None = None
        """The draft of the last Load; None takes whatever comes with the model to draft tokens."""
        self._by_hand = False
        """True if that draft is another than the settings want."""
        self.guard: Callable[[str, str, Callable[[], None]], None] = lambda what, title, act: act()
        """Does ``act`` unless answers are being written, which ``what`` would end: then it asks, with ``title``."""
        link.load_asked.connect(self._on_asked)
        link.loading.connect(self._on_loading)
        link.loaded.connect(self._on_settled)
        link.unloaded.connect(lambda _: self._on_loading(self._loading))  # to make room, or for good
        link.welcomed.connect(self._on_settled)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_settled)

    @property
    def loading(self) -> protocol.Loading | None:
        """The last report of a load that is under way."""
        return self._loading

    @property
    def own_draft(self) -> bool:
        """True if the last load took whatever comes with the model to draft tokens."""
        return self._draft is None

    def load(self, model: str, draft: str | None, chosen: bool = False) -> None:
        """``draft`` None takes the model's own, "" none. Asks first where that ends an answer. ``chosen``: the draft
        was chosen by hand."""

        def send() -> None:
            if chosen:
                self.draft_chosen.emit(model, draft)
            if chosen and draft != "":
                self.helper_chosen.emit()
            self._send_load(model, draft)

        again = self._link.card is not None and self._link.card.path == model
        name = Path(model).name
        if again:
            self.guard(tr("Reloading {name}", name=name), tr("Reload it now"), send)
        else:
            self.guard(tr("Opening {name}", name=name), tr("Open it now"), send)

    def load_now(self, model: str) -> None:
        """Load as the settings want it, and ask nothing."""
        self._send_load(model, self.choice.default_draft(model))

    def reload(self) -> None:
        """Load the present model once more, with the draft that was chosen by hand, else what the settings want."""
        if self._link.card is not None:
            path = self._link.card.path
            self.load(path, self._draft if self._by_hand else self.choice.default_draft(path))

    def cancel(self) -> None:
        """Stop the load that is under way."""
        self._link.send(protocol.CancelLoad())

    @property
    def refusal(self) -> str:
        """Reason, as a sentence, that no model can be loaded again or unloaded; "" if there is one."""
        return "" if self._link.card is not None and not self._link.idle else tr("No model is loaded.")

    def unload(self) -> None:
        """Free the memory of the loaded model. Asks first where that ends an answer."""
        if self._link.card is not None:
            name = self._link.card.name
            self.guard(
                tr("Unloading {name}", name=name), tr("Unload it now"), lambda: self._link.send(protocol.Unload())
            )

    def help_with(self, draft: str | None) -> None:
        """Load the present model with what the person chose to draft for it."""
        if self._link.card is not None:
            self.load(self._link.card.path, draft, chosen=True)

    def _send_load(self, model: str, draft: str | None) -> None:
        self._link.send(protocol.Load(model=model, draft=draft, options=self.choice.load_options(model)))

    def _on_asked(self, order: protocol.Load) -> None:
        """It takes a while until the engine says something."""
        self._draft, self._by_hand = order.draft, order.draft != self.choice.default_draft(order.model)
        connected = self._link.state is LinkState.CONNECTED
        self._on_loading(
            protocol.Loading(model=order.model, stage=tr("looking at its files"), fraction=0.0) if connected else None
        )

    def _on_loading(self, message: protocol.Loading | None) -> None:
        self._loading = message
        self.changed.emit()

    def _on_settled(self, *_: object) -> None:
        self._on_loading(None)

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            self._on_settled()

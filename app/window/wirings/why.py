"""Asks the engine why answers are as fast as they are, shows what it says, and sets what mends it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.link.link import EngineLink, LinkState
from app.panel.panel import OptimisationPanel
from app.plots.strip import PlotStrip
from app.plots.why import WhyCard
from app.theme.theme import Theme
from app.window.window import MainWindow
from engine import protocol


class WhyWiring(QObject):
    """Lives as long as the window. While the card is open, a switch that changes has the question asked again."""

    def __init__(
        self, link: EngineLink, plots: PlotStrip, panel: OptimisationPanel, theme: Theme, window: MainWindow
    ) -> None:
        super().__init__(window)
        self._link, self._panel, self._window = link, panel, window
        self._asked = ""
        self.card = WhyCard(theme, window)
        plots.why_requested.connect(self._open)
        self.card.mended.connect(self._mend)
        self.card.place_asked.connect(self._show_place)
        link.reasons.connect(self._on_reasons)
        link.failed.connect(self._on_failed)
        link.state_changed.connect(self._on_state)
        for changed in (link.options, link.loaded):
            changed.connect(self._ask_again)

    def _open(self, near: QWidget) -> None:
        if self.card.isVisible() and self.card.button is near:
            self.card.close_to_button()
            return
        self.card.open(near)
        self._ask()

    def _ask(self) -> None:
        self._asked = uuid.uuid4().hex
        self._link.send(protocol.Why(id=self._asked))

    def _ask_again(self, _: object) -> None:
        if self.card.isVisible():
            self._ask()

    def _mend(self, values: Mapping[str, protocol.Value]) -> None:
        """Set the values the way the person would in the panel."""
        for key, value in values.items():
            self._panel.value_changed.emit(key, value)

    def _show_place(self, place: str) -> None:
        pages = {"models": MainWindow.MODELS, "settings": MainWindow.SETTINGS}
        if place in pages:
            self._window.show_page(pages[place])

    def _on_reasons(self, message: protocol.Reasons) -> None:
        if message.id == self._asked and self.card.isVisible():
            self.card.show_reasons(message, {spec.key: spec for spec in self._link.catalogue})

    def _on_state(self, state: LinkState, sentence: str) -> None:
        """An engine that is gone answers nothing any more."""
        if state is not LinkState.CONNECTED and self.card.isVisible():
            self.card.say(sentence)

    def _on_failed(self, error: protocol.Error) -> None:
        if self._asked and error.id == self._asked and self.card.isVisible():
            self.card.say(error.message)

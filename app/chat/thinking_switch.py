"""Switch for the model's thinking before it answers, and its effort, if its chat template lets one choose."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import Segments, Toggle, fill, named, show_checked, switched
from engine.protocol import ModelCard, Thinking

HELP = tr("Let the model think before it answers. Slower, often better for hard questions.")
EFFORT_HELP = tr("How hard the model thinks before it answers.")
_EFFORTS = {"low": tr("Low"), "medium": tr("Medium"), "high": tr("High")}
"""Names of the efforts that the engine looks for in chat templates."""


def allowed(card: ModelCard | None, value: Thinking) -> Thinking:
    """``value`` without an effort that was chosen for another model and that this one does not know."""
    known = not value.effort or card is None or value.effort in card.thinking.efforts
    return value if known else msgspec.structs.replace(value, effort="")


class ThinkingSwitch(QWidget):
    """Hidden for models that leave no choice. ``changed`` carries the :class:`Thinking` that the person chose."""

    changed = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._value = Thinking()
        self._efforts: Segments | None = None
        self._known: list[str] = []
        self.setObjectName("thinking-switch")
        self.label = named(QLabel(tr("Thinking"), self), role="caption")
        self.toggle = named(Toggle(theme, self), "thinking-toggle", title=tr("Think before answering"), tooltip=HELP)
        switched(self.toggle, lambda on: self._choose(on=on))
        self.label.setToolTip(HELP)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(4, 0, 0, 0)  # in line with what is typed above it
        fill(self._row, self.label, self.toggle, 1, spacing=8)
        self.setVisible(False)

    @property
    def efforts(self) -> Segments | None:
        return self._efforts

    def show_for(self, card: ModelCard | None, value: Thinking) -> None:
        """Show what the model allows, set to ``value``, or to the template's own default where that says nothing."""
        self._value = value
        modes = card.thinking if card is not None else None
        switchable = modes is not None and modes.kind == "switchable"
        efforts = modes.efforts if modes is not None else []
        if efforts != self._known:
            self._offer(efforts)
        on = value.on if value.on is not None else modes is not None and modes.default
        self.toggle.setVisible(switchable)
        show_checked(self.toggle, on)
        if self._efforts is not None:
            self._efforts.setEnabled(on or not switchable)
            self._efforts.choose(value.effort if value.effort in efforts else efforts[len(efforts) // 2])
        self.setVisible(switchable or bool(efforts))

    def _offer(self, efforts: list[str]) -> None:
        if self._efforts is not None:
            self._row.removeWidget(self._efforts)
            self._efforts.hide()
            self._efforts.deleteLater()
            self._efforts = None
        self._known = list(efforts)
        if efforts:
            titles = [_EFFORTS.get(effort, effort.capitalize()) for effort in efforts]
            self._efforts = Segments(tr("Reasoning effort"), efforts, titles, "effort", self)
            self._efforts.setToolTip(EFFORT_HELP)
            self._efforts.chosen.connect(lambda effort: self._choose(effort=effort))
            self._row.insertWidget(2, self._efforts)

    def _choose(self, **changes: bool | str) -> None:
        self._value = msgspec.structs.replace(self._value, **changes)
        if self._efforts is not None and self._value.on is not None:
            self._efforts.setEnabled(self._value.on)
        self.changed.emit(self._value)

"""Under an approximate switch of the cache: measure its cost on the chat on screen, and what was found."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from app.theme.sheet import restyle
from engine.protocol import Cost, OptionSpec

MEASURE = "Measure its cost on this chat"
_SMALL = 0.005
"""A rise of the perplexity below this share is shown as good."""


def has_cost(spec: OptionSpec) -> bool:
    """Whether the switch approximates keys and values, whose cost MeasureCost tells."""
    return spec.exactness == "approximate" and spec.group == "Cache"


def describe(cost: Cost) -> str:
    """What was found, in lines: the setting, both perplexities, and how far the distributions lie apart."""
    rise = f" ({_signed(100 * (cost.present / cost.exact - 1))} %)" if cost.exact > 0 else ""
    return (
        f"{cost.setting}, on {cost.tokens:,} tokens of this chat:\n"
        f"perplexity {cost.exact:.2f} exact, {cost.present:.2f} as set{rise};\n"
        f"KL divergence {cost.divergence:.2g} nats a token."
    )


class CostLine(QWidget):
    """Hidden while the switch approximates nothing. ``requested`` comes from the person."""

    requested = Signal()

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._spec = spec
        self._blocked = ""
        self._running = False
        self._button = QPushButton(MEASURE)
        self._button.setProperty("kind", "link")
        self._button.setObjectName(f"{spec.key}.cost")
        self._button.setAccessibleName(f"{spec.title}: measure its cost on this chat")
        self._button.clicked.connect(self.requested)
        self._outcome = QLabel()
        self._outcome.setObjectName(f"{spec.key}.cost.outcome")
        self._outcome.setWordWrap(True)
        self._outcome.setVisible(False)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self._button, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._outcome)
        self._refresh()

    def set_spec(self, spec: OptionSpec) -> None:
        """A measurement is of one value: another one makes it void."""
        if spec.value != self._spec.value:
            self.show_cost(None)
        self._spec = spec
        self._refresh()

    def set_blocked(self, reason: str) -> None:
        """Why nothing can be measured now; empty when it can."""
        self._blocked = reason
        self._refresh()

    def set_running(self, running: bool) -> None:
        self._running = running
        self._refresh()

    def show_cost(self, cost: Cost | None) -> None:
        """What was measured; None takes it off."""
        self._outcome.setVisible(cost is not None)
        if cost is not None:
            self._outcome.setText(describe(cost))
            small = cost.present <= cost.exact * (1 + _SMALL)
            self._outcome.setProperty("role", "good" if small else "warn")
            restyle(self._outcome)

    def _refresh(self) -> None:
        reason = "Measuring now." if self._running else self._blocked
        self.setVisible(self._spec.value != self._spec.default and not self._spec.disabled_reason)
        self._button.setEnabled(not reason)
        self._button.setText("Measuring its cost…" if self._running else MEASURE)
        tip = "Reads this chat's tokens again with exact keys and values, and compares what the model expects next."
        self._button.setToolTip(reason or tip)


def _signed(percent: float) -> str:
    return f"{percent:+.1f}" if abs(percent) >= 0.05 else "±0.0"

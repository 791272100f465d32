"""Under an approximate switch of the cache: measure its cost on the chat on screen, and what was found."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from app.language import known, tr
from app.theme.sheet import set_role
from app.theme.widgets import fill, named, tip
from engine.protocol import CACHE_GROUP, Cost, OptionSpec

MEASURE = tr("Measure its cost on this chat")
VERDICT_TOKENS = 500
"""Predictions below which no verdict is given."""
_ERRORS = 2.0
"""Standard errors within which a difference of the log-likelihoods is noise."""


def has_cost(spec: OptionSpec) -> bool:
    """True if the switch approximates keys and values, whose cost MeasureCost tells."""
    return spec.exactness == "approximate" and spec.group == CACHE_GROUP


def describe(cost: Cost) -> str:
    """A verdict on the setting's quality, or that the text is too short for one; the figures behind it after that."""
    loss, error = _loss(cost), 100 * _ERRORS * cost.error
    tokens = cost.tokens
    if tokens < VERDICT_TOKENS:
        told = tr(
            "no verdict yet: this chat has {tokens:,} tokens, a verdict needs {least}",
            tokens=tokens,
            least=VERDICT_TOKENS,
        )
    elif loss <= error:
        told = tr("no measurable loss ({tokens:,} tokens)", tokens=tokens)
    else:
        told = tr("perplexity {loss:+.1f} % (± {error:.1f}) ({tokens:,} tokens)", loss=loss, error=error, tokens=tokens)
    return tr(
        "Quality with {setting}: {told}. Details: PPL {exact:.2f} → {present:.2f}, KL {divergence:.2g}",
        setting=known(cost.setting),
        told=told,
        exact=cost.exact,
        present=cost.present,
        divergence=cost.divergence,
    )


def tone(cost: Cost) -> str:
    """A loss beyond the noise of a text long enough is a warning; anything else says little."""
    return "warn" if cost.tokens >= VERDICT_TOKENS and _loss(cost) > 100 * _ERRORS * cost.error else "caption"


def _loss(cost: Cost) -> float:
    """Rise of the perplexity in percent."""
    return 100 * (cost.present / cost.exact - 1) if cost.exact > 0 else 0.0


class CostLine(QWidget):
    """Hidden while the switch approximates nothing. ``requested`` comes from the person."""

    requested = Signal()

    def __init__(self, spec: OptionSpec, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._spec = spec
        self._blocked = ""
        self._running = False
        self._button = QPushButton(MEASURE)
        title = tr("{switch}: measure its cost on this chat", switch=known(spec.title))
        named(self._button, f"{spec.key}.cost", title=title, kind="choice")
        self._button.clicked.connect(self.requested)
        self._outcome = named(QLabel(wordWrap=True), f"{spec.key}.cost.outcome")
        self._outcome.setVisible(False)
        self._unfolded = False
        fill(QVBoxLayout(self), (self._button, 0, Qt.AlignmentFlag.AlignLeft), self._outcome, margins=0, spacing=4)
        self._refresh()

    def set_spec(self, spec: OptionSpec) -> None:
        """A measurement is of one value: another one makes it void."""
        if spec.value != self._spec.value:
            self.show_cost(None)
        self._spec = spec
        self._refresh()

    def set_blocked(self, reason: str) -> None:
        """Set the reason nothing can be measured now; empty when it can."""
        self._blocked = reason
        self._refresh()

    def set_running(self, running: bool) -> None:
        self._running = running
        self._refresh()

    def show_cost(self, cost: Cost | None) -> None:
        """Show the measured cost; None takes it off."""
        self._outcome.setText(describe(cost) if cost is not None else "")
        self._outcome.setVisible(cost is not None and self._unfolded)
        if cost is not None:
            set_role(self._outcome, tone(cost))

    def unfold(self, unfolded: bool) -> None:
        """Show what was found with the row's explanation: it would move other rows if it came by itself."""
        self._unfolded = unfolded
        self._outcome.setVisible(unfolded and bool(self._outcome.text()))

    def _refresh(self) -> None:
        reason = tr("Measuring now.") if self._running else self._blocked
        self.setVisible(self._spec.value != self._spec.default and not self._spec.disabled_reason)
        self._button.setEnabled(not reason)
        self._button.setText(tr("Measuring its cost…") if self._running else MEASURE)
        about = tr(
            "Reads this chat's tokens again with exact keys and values, and compares what the model expects next."
        )
        self._button.setToolTip(tip(reason or about))

"""Share of the model's context that the conversation takes: "context 1,284 / 8,192" and a bar."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.chat.context.overflow import OVER
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import FillBar, fill, tip
from engine.protocol import Overflow

NEARLY_FULL = 0.9


class ContextBar(QWidget):
    """Hidden until both numbers are known."""

    changed = Signal()
    """It may take another width now."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("context-bar")
        self.overflow: Overflow = "stop"
        """Policy for a conversation that does not fit."""
        self._label = QLabel(self)
        self.bar = FillBar(theme, self)
        self.bar.setFixedWidth(120)
        fill(QHBoxLayout(self), self._label, self.bar, margins=0, spacing=12)
        self.setVisible(False)

    @property
    def text(self) -> str:
        return "" if self.isHidden() else self._label.text()

    def show_tokens(self, used: int | None, limit: int, seen: int | None = None) -> None:
        """Show the counts. ``used`` None: not known. ``seen`` is how much of it the model sees, None all of it."""
        self.setVisible(used is not None and limit > 0)
        if used is None or limit <= 0:
            self.changed.emit()
            return
        whole, used = used, used if seen is None else seen
        share, over = used / limit, OVER[self.overflow] if whole > limit else ""
        level = "bad" if over and self.overflow == "stop" else "warn" if over or share > NEARLY_FULL else "mute"
        self._label.setText(f"context {used:,} / {limit:,}")
        set_role(self._label, level)
        self.bar.fraction, self.bar.token = share, "accent" if level == "mute" else level
        self.bar.update()
        if whole != used:
            over = f"The conversation has {whole:,} tokens, of which the model sees {used:,}. {over}".strip()
        self.setToolTip(tip(over or f"{share:.0%} of the context is taken by this conversation."))
        self.setAccessibleName(f"{self._label.text()} tokens. {over}".strip())
        self.changed.emit()

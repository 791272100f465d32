"""Share of the context that a conversation takes ("context 1,284 / 8,192" and a bar), and what of it is kept."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.chat.context.overflow import OVER
from app.language import tr
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import FillBar, fill, named, tip
from engine.protocol import Overflow

NEARLY_FULL = 0.9
LEAST_KEPT = 64
"""Tokens below which it does not matter that they are kept."""
KEPT = tr("The next answer begins without reading these tokens again: they are in the cache, or on disk.")


class ContextBar(QWidget):
    """Hidden until both numbers are known."""

    changed = Signal()
    """It may take another width now."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("context-bar")
        self.overflow: Overflow = "stop"
        """Policy for a conversation that does not fit."""
        self.kept = named(QLabel(self), "context-kept", role="caption", tooltip=tip(KEPT))
        """Hidden while nothing is kept, and where there is no room."""
        self.kept.hide()
        self._label = QLabel(self)
        self.bar = FillBar(theme, self)
        self.bar.setFixedWidth(120)
        fill(QHBoxLayout(self), self.kept, self._label, self.bar, margins=0, spacing=12)
        self.setVisible(False)

    @property
    def text(self) -> str:
        return "" if self.isHidden() else self._label.text()

    def show_kept(self, tokens: int | None) -> None:
        """Show how many of the conversation's tokens are kept; None: not known."""
        enough = tokens is not None and tokens >= LEAST_KEPT
        words = tr("{tokens:,} tokens kept", tokens=tokens) if enough else ""
        if words != self.kept.text():
            self.kept.setText(words)
            self.changed.emit()

    def show_tokens(self, used: int | None, limit: int, seen: int | None = None) -> None:
        """Show the counts. ``used`` None: not known. ``seen`` is how much of it the model sees, None all of it."""
        self.setVisible(used is not None and limit > 0)
        if used is None or limit <= 0:
            self.changed.emit()
            return
        whole, used = used, used if seen is None else seen
        share, over = used / limit, OVER[self.overflow] if whole > limit else ""
        level = "bad" if over and self.overflow == "stop" else "warn" if over or share > NEARLY_FULL else "mute"
        self._label.setText(tr("context {used:,} / {limit:,}", used=used, limit=limit))
        set_role(self._label, level)
        self.bar.fraction, self.bar.token = share, "accent" if level == "mute" else level
        self.bar.update()
        if whole != used:
            said = tr(
                "The conversation has {whole:,} tokens, of which the model sees {used:,}.", whole=whole, used=used
            )
            over = f"{said} {over}".strip()
        self.setToolTip(tip(over or tr("{share:.0%} of the context is taken by this conversation.", share=share)))
        spoken = tr("context {used:,} / {limit:,} tokens.", used=used, limit=limit)
        self.setAccessibleName(f"{spoken} {over}".strip())
        self.changed.emit()

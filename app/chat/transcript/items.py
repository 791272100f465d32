"""The transcript's record of each message it shows, with or without a widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.chat.transcript.message import FOOTER_PX, MessageView
from app.history.records import StoredMessage


@dataclass
class TranscriptItem:
    message: StoredMessage
    height: int = 0
    measured: bool = False
    """False while ``height`` is an estimate."""
    left: int = 0
    top: int = 0
    other_model: bool = False
    """True for an answer of another model than that of the last one before it."""
    unfolded: frozenset[int] = frozenset()
    """The parts that can be folded, counted from the top, which the person unfolded."""
    wrapped: frozenset[int] = frozenset()
    """The code blocks, counted from the top, whose long lines the person wrapped."""
    beside: bool = False
    """True if it stands in a column beside others."""
    saved: Sequence[str] | None = None
    """For each document what the cache saved of reading it; None where an answer has come or ended since that was
    asked."""
    view: MessageView | None = field(default=None, repr=False)

    def drop(self) -> None:
        """Take the widget away."""
        if self.view is not None:
            self.view.hide()
            self.view.deleteLater()
            self.view = None


def estimate(message: StoredMessage, column: int) -> int:
    """About how high the message will be, pixels, from its characters a line."""
    share, line = (0.75, 20) if message.role == "user" else (1.0, 22)
    per_line = max(20, int(column * share / 7))
    lines = sum(1 + len(piece) // per_line for piece in message.content.split("\n"))
    lines += bool(message.thinking) + len(message.parts) + 2 * len(message.documents)
    return lines * line + FOOTER_PX[message.role] + 20

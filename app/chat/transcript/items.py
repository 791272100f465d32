"""The transcript's record of each message it shows, with or without a widget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.chat.context.overflow import DimmedMessages, hidden
from app.chat.transcript.message import FOOTER_PX, MessageView
from app.chat.transcript.stats import writer
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


class ShownMessages:
    """The messages on show, top to bottom."""

    def __init__(self) -> None:
        self._items: list[TranscriptItem] = []
        self.hidden: DimmedMessages | None = None
        """What the model did not see for the last answer."""

    def __iter__(self) -> Iterator[TranscriptItem]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def beside(self) -> list[TranscriptItem]:
        """Those that stand side by side, which are the last ones."""
        return [item for item in self._items if item.beside]

    def get(self, message_id: str) -> TranscriptItem | None:
        return next((item for item in reversed(self._items) if item.message.id == message_id), None)

    def first_below(self, y: int) -> TranscriptItem | None:
        """The first message that ends below that place, pixels."""
        return next((item for item in self._items if item.top + item.height > y), None)

    def show(self, messages: Sequence[StoredMessage], beside: int, column: int) -> None:
        """These messages, the last ``beside`` of them side by side; widgets of those that stay are kept. ``column``:
        its width, pixels."""
        old = {item.message.id: item for item in self._items}
        self._items = [_kept(old.pop(message.id, None), message, column) for message in messages]
        for item in old.values():
            item.drop()
        for place, item in enumerate(self._items, beside - len(self._items)):
            if item.beside != (place >= 0):
                item.beside, item.measured = place >= 0, False
        self._look_again()

    def update(self, message: StoredMessage) -> TranscriptItem | None:
        """The record of a message changed; None where it is not on show."""
        item = self.get(message.id)
        if item is not None:
            item.message = message
            if item.view is not None:
                item.view.show_message(message)
                item.measured = False
            self._look_again()
        return item

    def dimmed(self, index: int) -> bool:
        return self.hidden is not None and self.hidden.first <= index < self.hidden.last

    def _look_again(self) -> None:
        """What is to be said of each beside the others may be something else now."""
        self.hidden = hidden([item.message for item in self._items])
        before = ""
        for item in self._items:
            item.saved = None
            model = writer(item.message)
            item.other_model = before not in ("", model)
            before = model or before


def _kept(item: TranscriptItem | None, message: StoredMessage, column: int) -> TranscriptItem:
    if item is None:
        return TranscriptItem(message, estimate(message, column))
    if item.message != message:
        item.message, item.measured = message, False
        if item.view is not None:
            item.view.show_message(message)
    return item


def estimate(message: StoredMessage, column: int) -> int:
    """About how high the message will be, pixels, from its characters a line."""
    share, line = (0.75, 20) if message.role == "user" else (1.0, 22)
    per_line = max(20, int(column * share / 7))
    lines = sum(1 + len(piece) // per_line for piece in message.content.split("\n"))
    lines += bool(message.thinking) + len(message.parts) + 2 * len(message.documents)
    return lines * line + FOOTER_PX[message.role] + 20

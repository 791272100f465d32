"""What can be done with a message, by what it is and where it stands. No widget is made here."""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.transcript.lesson import lesson
from app.history.records import StoredMessage


@dataclass(slots=True)
class Place:
    """Where a message stands, and whether the mouse or the keyboard focus is on it."""

    last: bool = False
    queued: bool = False
    """True if it waits for the model, and will be answered by itself."""
    beside: bool = False
    """True if it stands in a column, whose frame has what can be done with it."""
    hovered: bool = False
    focused: bool = False

    @property
    def near(self) -> bool:
        return self.hovered or self.focused


def offered(message: StoredMessage, place: Place) -> tuple[bool, tuple[str, ...]]:
    """Whether the actions are on show, and their names."""
    visible = (place.near or place.last) and message.state != "streaming" and not place.beside
    return visible, _of_answer(message, place.last) if message.role == "assistant" else _of_others(message, place)


def _of_others(message: StoredMessage, place: Place) -> tuple[str, ...]:
    retry = ("retry",) if place.last else ()
    if message.role == "tool":
        return retry
    return ("edit", "copy") if place.queued else (*retry, "edit", "begin", "copy")


def _of_answer(message: StoredMessage, last: bool) -> tuple[str, ...]:
    own = message.stats.edited or message.stats.continued_at
    names = ["copy", "regenerate", *(() if own else ("again",))] if message.content else ["regenerate"]
    if not message.calls:
        names.insert(0, "edit")
    if last and message.unfinished and (message.content or message.thinking):
        names.insert(0, "continue")
    if message.stats.repeat is not None:
        names.append("compare")
    if message.stats.reason == "context":
        names.append("overflow")
    if last and lesson(message):
        names.insert(0, "learn")
    return tuple(names)

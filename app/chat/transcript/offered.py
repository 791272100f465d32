"""Actions that a message offers, by what it is, what its figures have to teach and where it stands. No widget is made
here."""

from __future__ import annotations

from dataclasses import dataclass

from app.history.records import StoredMessage
from app.language import tr

PREFIXES, SPECULATION = "prefixes", "speculation"
"""Experiments of the Lab."""
LEAST_PER_STEP = 2.0
LEAST_CACHED = 0.5
"""The share of the prompt that came from the cache, from which on it is worth a word."""
LEAST_TOKENS = 64
"""Tokens from the cache below which nothing much was saved."""


def lesson(message: StoredMessage) -> str:
    """Name of the experiment that explains the answer's figures; "" where there is nothing to explain."""
    usage, timings = message.stats.usage, message.stats.timings
    if message.stats.remote is not None or usage is None or timings is None:
        return ""
    if timings.proposed and timings.tokens_per_step >= LEAST_PER_STEP:
        return SPECULATION
    if usage.cached_tokens >= max(LEAST_TOKENS, LEAST_CACHED * usage.prompt_tokens):
        return PREFIXES
    return ""


def about(message: StoredMessage) -> str:
    """The figure that it is about: "3.1 tokens a step"."""
    usage, timings = message.stats.usage, message.stats.timings
    if timings is not None and lesson(message) == SPECULATION:
        return tr("{count:.1f} tokens a step", count=timings.tokens_per_step)
    if usage is None:
        return ""
    return tr("{cached:,} of {prompt:,} tokens from the cache", cached=usage.cached_tokens, prompt=usage.prompt_tokens)


@dataclass(slots=True)
class MessagePlace:
    """The place of a message, and whether the mouse or the keyboard focus is on it."""

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


def offered(message: StoredMessage, place: MessagePlace) -> tuple[bool, tuple[str, ...]]:
    """Return whether the actions are on show, and their names."""
    visible = (place.near or place.last) and message.state != "streaming" and not place.beside
    return visible, _of_answer(message, place.last) if message.role == "assistant" else _of_others(message, place)


def _of_others(message: StoredMessage, place: MessagePlace) -> tuple[str, ...]:
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

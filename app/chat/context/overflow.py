"""Texts for a conversation that outgrows the context, and the part of it that the model does not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.history.records import OmittedContext, StoredMessage
from engine.protocol import Overflow

TITLES: dict[Overflow, str] = {"stop": "stop", "drop_middle": "drop the middle", "window": "sliding window"}
MEANINGS: dict[Overflow, str] = {
    "stop": "The answer stops and says so. Nothing is left out.",
    "drop_middle": "The model keeps the first and latest messages and no longer sees those between, which are dimmed.",
    "window": "The model sees the first tokens and the last ones, and goes on writing. What it wrote long ago fades.",
}
OVER: dict[Overflow, str] = {
    "stop": "The conversation no longer fits: shorten a message or start a new chat.",
    "drop_middle": "The conversation no longer fits whole: the model will not see its middle.",
    "window": "The conversation no longer fits whole: the model sees its beginning and its end.",
}
OFFER: Overflow = "drop_middle"
OFFER_TITLE = "Drop the middle (keep first and latest)"


class DimmedMessages(NamedTuple):
    """The messages [first, last) of the branch are dimmed; ``sentence`` stands on a line above message ``line``."""

    first: int
    last: int
    line: int
    sentence: str


def hidden(path: Sequence[StoredMessage]) -> DimmedMessages | None:
    """Messages the model did not see when it wrote the last answer that has begun; None if it saw everything."""
    for place in range(len(path) - 1, -1, -1):
        message = path[place]
        if message.role != "assistant":
            continue
        if message.stats.cut is not None:
            return _shown(message.stats.cut, place)
        if message.state != "streaming":
            return None
    return None


def full(tokens: int, policy: Overflow) -> str:
    """Message after an answer that the end of the context stopped."""
    said = f"The context is full, so the answer stopped after {tokens:,} {'token' if tokens == 1 else 'tokens'}."
    if policy == "stop":
        return f"{said} Kvasir can go on if the model no longer sees the middle of the conversation."
    return f"{said} Shorten a message or start a new chat."


def _shown(cut: OmittedContext, place: int) -> DimmedMessages | None:
    if cut.policy == "window":
        sinks = f"the first {cut.sinks:,} and " if cut.sinks else ""
        return DimmedMessages(0, 0, place, f"The model sees only {sinks}the last {cut.window:,} tokens")
    first, last = cut.first, min(cut.last, place)
    if last <= first:
        return None
    which = "this message" if last - first == 1 else f"these {last - first:,} messages"
    tokens = f" ({cut.tokens:,} tokens)" if cut.tokens else ""
    return DimmedMessages(first, last, last, f"The model no longer sees {which}{tokens}")

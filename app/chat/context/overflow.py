"""Texts for a conversation that outgrows the context, and the part of it that the model does not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.history.records import OmittedContext, StoredMessage
from app.language import plural, tr
from engine.protocol import Overflow

TITLES: dict[Overflow, str] = {
    "stop": tr("stop", "what happens when the context is full"),
    "drop_middle": tr("drop the middle"),
    "window": tr("sliding window"),
}
MEANINGS: dict[Overflow, str] = {
    "stop": tr("The answer stops and says so. Nothing is left out."),
    "drop_middle": tr(
        "The model keeps the first and latest messages and no longer sees those between, which are dimmed."
    ),
    "window": tr(
        "The model sees the first tokens and the last ones, and goes on writing. What it wrote long ago fades."
    ),
}
OVER: dict[Overflow, str] = {
    "stop": tr("The conversation no longer fits: shorten a message or start a new chat."),
    "drop_middle": tr("The conversation no longer fits whole: the model will not see its middle."),
    "window": tr("The conversation no longer fits whole: the model sees its beginning and its end."),
}
OFFER: Overflow = "drop_middle"
OFFER_TITLE = tr("Drop the middle (keep first and latest)")


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
    said = plural(
        "The context is full, so the answer stopped after 1 token.",
        "The context is full, so the answer stopped after {n:,} tokens.",
        tokens,
    )
    if policy == "stop":
        return f"{said} {tr('Kvasir can go on if the model no longer sees the middle of the conversation.')}"
    return f"{said} {tr('Shorten a message or start a new chat.')}"


def _shown(cut: OmittedContext, place: int) -> DimmedMessages | None:
    if cut.policy == "window":
        if cut.sinks:
            seen = tr(
                "The model sees only the first {sinks:,} and the last {window:,} tokens",
                sinks=cut.sinks,
                window=cut.window,
            )
        else:
            seen = tr("The model sees only the last {window:,} tokens", window=cut.window)
        return DimmedMessages(0, 0, place, seen)
    first, last = cut.first, min(cut.last, place)
    if last <= first:
        return None
    if cut.tokens:
        unseen = plural(
            "The model no longer sees this message ({tokens:,} tokens)",
            "The model no longer sees these {n:,} messages ({tokens:,} tokens)",
            last - first,
            tokens=cut.tokens,
        )
    else:
        unseen = plural(
            "The model no longer sees this message", "The model no longer sees these {n:,} messages", last - first
        )
    return DimmedMessages(first, last, last, unseen)

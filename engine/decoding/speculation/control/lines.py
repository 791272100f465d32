"""The controller's one line for people: what was chosen and why."""

from __future__ import annotations

from typing import NamedTuple

from engine.catalogue import BY_KEY
from engine.decoding.speculation.control.stats import AcceptanceStats
from engine.protocol import keys


class Price(NamedTuple):
    """Draft tokens, their depth, and the plain steps that a step with them takes (1: they are free)."""

    nodes: int
    depth: int
    steps: float


def on_line(name: str, acceptance: AcceptanceStats, price: Price, how: str = "") -> str:
    """Such as "n-gram, 6 ahead: 71 % accepted, 3.4 tokens per step for 1.6 times a plain step". ``how``: " as set", or
    " to try"."""
    share = f"{title(name)}, {_shape(price)}{how}: {_share(acceptance, price)} accepted, "
    tokens = f"{acceptance.tokens(price.nodes, price.depth):.1f} tokens per step"
    # Under a shape that the user set no plain steps are made to compare with.
    return share + (tokens if how == AS_SET else f"{tokens} for {price.steps:.1f} times a plain step")


def off_line(acceptance: AcceptanceStats, price: Price, wait: int) -> str:
    """Such as "drafts cost more than they save (31 % accepted; 4 ahead would take 1.9 plain steps for 1.4 tokens); next
    try in 64 steps"."""
    return (
        f"drafts cost more than they save ({_share(acceptance, price)} accepted; {_shape(price)} would take "
        f"{price.steps:.1f} plain steps for {acceptance.tokens(price.nodes, price.depth):.1f} tokens); "
        f"next try in {wait} steps"
    )


AS_SET = " as set"
TO_TRY = " to try"


def title(name: str) -> str:
    """Name of a proposer for people."""
    choices = BY_KEY[keys.SPECULATION].choices
    return next((choice.title for choice in choices if choice.key == name), name)


def _shape(price: Price) -> str:
    if price.nodes > price.depth:
        return f"{price.nodes} drafts {price.depth} deep"
    return f"{price.depth} ahead"


def _share(acceptance: AcceptanceStats, price: Price) -> str:
    return f"{100 * acceptance.share(price.nodes, price.depth):.0f} %"

"""The controller's one line for people: what was chosen and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.catalogue import BY_KEY
from engine.speculation.acceptance import Acceptance

if TYPE_CHECKING:
    from engine.speculation.candidate import Price

_NAMES = {choice.key: choice.title for choice in BY_KEY["speculation"].choices}


def on_line(name: str, acceptance: Acceptance, price: Price, fixed: bool = False, probe: bool = False) -> str:
    """Such as "n-gram, 6 ahead: 71 % hold, 3.4 tokens a step for 1.6 times a plain step"."""
    how = " as set" if fixed else " to try" if probe else ""
    held = f"{title(name)}, {_shape(price)}{how}: {_share(acceptance, price)} hold, "
    tokens = f"{_tokens(acceptance, price):.1f} tokens a step"
    # Under a fixed shape no plain steps are made to compare with.
    return held + (tokens if fixed else f"{tokens} for {price.steps:.1f} times a plain step")


def off_line(acceptance: Acceptance, price: Price, measured_loss: float, wait: int) -> str:
    """Such as "guesses cost more than they save (31 % hold; 4 ahead would take 1.9 plain steps for 1.4 tokens); next
    try in 64 steps". ``measured_loss``: how much longer a token took with guesses, where pairs of steps said so."""
    if measured_loss:
        why = f"measured, a token took {measured_loss:.2f} times as long with guesses as without"
    else:
        why = (
            f"guesses cost more than they save ({_share(acceptance, price)} hold; {_shape(price)} would take "
            f"{price.steps:.1f} plain steps for {_tokens(acceptance, price):.1f} tokens)"
        )
    return f"{why}; next try in {wait} steps"


def title(name: str) -> str:
    """What people call a proposer."""
    return _NAMES.get(name, name)


def _shape(price: Price) -> str:
    if price.nodes > price.depth:
        return f"{price.nodes} guesses {price.depth} deep"
    return f"{price.depth} ahead"


def _share(acceptance: Acceptance, price: Price) -> str:
    return f"{100 * acceptance.hold(price.nodes, price.depth):.0f} %"


def _tokens(acceptance: Acceptance, price: Price) -> float:
    return acceptance.tokens(price.nodes, price.depth)[-1]

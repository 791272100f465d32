"""Who guesses ahead: what people call each proposer, and its colour wherever it shows."""

from __future__ import annotations

from typing import NamedTuple

from app.theme.theme import Theme


class Proposer(NamedTuple):
    """``name`` stands in legends, ``by`` after "Guessed"; ``token`` is the theme's, mixed with the panel by ``share``.

    Kinds that work alike share a token: two that guess with parts of the model itself, two with heads on top of it.
    """

    name: str
    by: str
    token: str
    share: float = 1.0


PROPOSERS = {
    "ngram": Proposer("n-gram", "from what the text repeats (n-gram)", "teal"),
    "draft": Proposer("draft model", "by the draft model", "good"),
    "exit": Proposer("early exit", "by the model's first layers (early exit)", "violet"),
    "skip": Proposer("layer skipping", "by the model with layers left out (layer skipping)", "violet", 0.5),
    "medusa": Proposer("Medusa", "by the Medusa heads", "accent"),
    "eagle": Proposer("EAGLE", "by the EAGLE head", "accent", 0.5),
    "mtp": Proposer("multi-token", "by the model's multi-token layers", "mute"),
}
"""By the engine's name of it, which is the source of its tokens too."""


def proposer(key: str) -> Proposer:
    """One that a later engine has and this window does not know goes by the engine's name."""
    return PROPOSERS.get(key) or Proposer(key, f"by {key}", "mute")


def color(theme: Theme, key: str) -> str:
    """The proposer's colour as ``#rrggbb``."""
    one = proposer(key)
    return theme.tint(one.token, one.share, "panel")

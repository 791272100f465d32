"""Proposers, which draft tokens: what people call each proposer, and its colour wherever it shows."""

from __future__ import annotations

from typing import NamedTuple

from app.theme.theme import Theme


class ProposerStyle(NamedTuple):
    """``name`` stands in legends, ``by`` after "Drafted"; ``token`` is the theme's, mixed with the panel by ``share``.

    Kinds that work alike share a token: two that draft with parts of the model itself, two with heads on top of it.
    """

    name: str
    by: str
    token: str
    share: float = 1.0


PROPOSERS = {
    "ngram": ProposerStyle("n-gram", "from what the text repeats (n-gram)", "teal"),
    "draft": ProposerStyle("draft model", "by the draft model", "good"),
    "exit": ProposerStyle("early exit", "by the model's first layers (early exit)", "violet"),
    "skip": ProposerStyle("layer skipping", "by the model with layers left out (layer skipping)", "violet", 0.5),
    "medusa": ProposerStyle("Medusa", "by the Medusa heads", "accent"),
    "eagle": ProposerStyle("EAGLE", "by the EAGLE head", "accent", 0.5),
    "mtp": ProposerStyle("multi-token", "by the model's multi-token layers", "mute"),
    "assistant": ProposerStyle("assistant", "by the Gemma 4 assistant", "good", 0.5),
}
"""Proposers by the engine's name, which is the source of their tokens too."""


def proposer(key: str) -> ProposerStyle:
    """The proposer of that name; one of a later engine that this window does not know keeps the engine's name."""
    return PROPOSERS.get(key) or ProposerStyle(key, f"by {key}", "mute")


def color(theme: Theme, key: str) -> str:
    """The proposer's colour as ``#rrggbb``."""
    one = proposer(key)
    return theme.tint(one.token, one.share, "panel")

"""Proposers, which draft tokens: what people call each, and its colour wherever it shows, as the engine says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from app.language import known, tr
from app.theme.theme import Theme
from engine.protocol import DrafterStyle

_KNOWN: dict[str, DrafterStyle] = {}


def learn(styles: Iterable[DrafterStyle]) -> None:
    """Take over the proposers of the engine that greets."""
    _KNOWN.clear()
    _KNOWN.update(
        {
            each.key: msgspec.structs.replace(each, name=known(each.name), by=known(each.by), offer=known(each.offer))
            for each in styles
        }
    )


def proposer(key: str) -> DrafterStyle:
    """The proposer of that name; one that the engine does not know, as in an old chat, keeps its name."""
    return _KNOWN.get(key) or DrafterStyle(key=key, name=key, by=tr("by {name}", name=key), color="mute", offer=key)


def trained() -> list[str]:
    """Names of the kinds of heads that are trained for a model."""
    return [each.name for each in _KNOWN.values() if each.heads == "trained"]


def offered(kind: str) -> str:
    """Words for a kind of offered drafter (:data:`engine.protocol.DraftKind`)."""
    return proposer("draft" if kind == "model" else kind).offer


def color(theme: Theme, key: str) -> str:
    """The proposer's colour as ``#rrggbb``."""
    one = proposer(key)
    return theme.shade(one.color, one.share)

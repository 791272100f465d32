"""Words about the loaded model: what it is, and what drafts tokens for it. Pure functions, no widgets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from app.language import tr
from app.proposers import proposer
from engine import protocol


def heads(card: protocol.ModelCard) -> str:
    """Name the heads, such as "one and other heads, assistant"; "" if there are none."""
    found = [proposer(kind) for kind in card.heads]
    names, others = [each.name for each in found if each.heads], [each.name for each in found if not each.heads]
    return ", ".join([*([tr("{names} heads", names=all_of(names))] if names else []), *others])


def all_of(names: Sequence[str]) -> str:
    """Join names, such as "one and other"; "" for none."""
    return reduce(lambda before, name: tr("{names} and {name}", names=before, name=name), names) if names else ""


def one_of(names: Sequence[str]) -> str:
    """Join names, such as "one or other"; "" for none."""
    return reduce(lambda before, name: tr("{names} or {name}", names=before, name=name), names) if names else ""


def drafters(card: protocol.ModelCard) -> tuple[str, ...]:
    """Describe the model's proposers, from long to short: "draft tiny, one and other heads", "draft, one, other",
    "3 drafters". A folder that is called just draft is no name."""
    named = card.draft.lower().strip("._- ") not in ("draft", "draft-model", "draft_model", "drafter", "assistant")
    draft = tr("draft {name}", name=card.draft) if named else tr("draft model")
    parts = [part for part in (draft if card.draft else "", heads(card)) if part]
    kinds = [*([tr("draft")] if card.draft else []), *(proposer(kind).name for kind in card.heads)]
    if not kinds:
        return ("",)
    short = (", ".join(kinds), tr("{count} drafters", count=len(kinds))) if len(kinds) > 1 else ()
    return ", ".join(parts), *short


def about(card: protocol.ModelCard) -> str:
    """The selector's tooltip."""
    lines = [card.quantisation, card.path]
    if card.draft:
        lines.append(tr("Draft: {name}", name=card.draft))
    if card.heads:
        lines.append(tr("Speculates with {heads}", heads=heads(card)))
    return "\n".join(lines)


def short(quantisation: str) -> str:
    """``GPTQ 4-bit`` of ``GPTQ 4-bit, groups of 64``: the tooltip has room for the rest, the button has not."""
    return quantisation.split(",")[0]

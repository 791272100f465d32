"""Words about the loaded model: what it is, and what drafts tokens for it. Pure functions, no widgets."""

from __future__ import annotations

from app.proposers import proposer
from engine import protocol


def heads(card: protocol.ModelCard) -> str:
    """Name the heads, such as "one and other heads, assistant"; "" if there are none."""
    found = [proposer(kind) for kind in card.heads]
    names = " and ".join(each.name for each in found if each.heads)
    return ", ".join([*([f"{names} heads"] if names else []), *(each.name for each in found if not each.heads)])


def drafters(card: protocol.ModelCard) -> tuple[str, ...]:
    """Describe the model's proposers, from long to short: "draft tiny, one and other heads", "draft, one, other",
    "3 drafters". A folder that is called just draft is no name."""
    named = card.draft.lower().strip("._- ") not in ("draft", "draft-model", "draft_model", "drafter", "assistant")
    draft = f"draft {card.draft}" if card.draft and named else "draft model" if card.draft else ""
    parts = [part for part in (draft, heads(card)) if part]
    kinds = [*(["draft"] if card.draft else []), *(proposer(kind).name for kind in card.heads)]
    if not kinds:
        return ("",)
    short = (", ".join(kinds), f"{len(kinds)} drafters") if len(kinds) > 1 else ()
    return ", ".join(parts), *short


def about(card: protocol.ModelCard) -> str:
    """The selector's tooltip."""
    lines = [card.quantisation, card.path]
    if card.draft:
        lines.append(f"Draft: {card.draft}")
    if card.heads:
        lines.append(f"Speculates with {heads(card)}")
    return "\n".join(lines)


def short(quantisation: str) -> str:
    """``GPTQ 4-bit`` of ``GPTQ 4-bit, groups of 64``: the tooltip has room for the rest, the button has not."""
    return quantisation.split(",")[0]

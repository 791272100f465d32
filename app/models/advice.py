"""Texts of the Models page on recommended models and on drafts: pure functions of records."""

from __future__ import annotations

from app.models.words import licence
from app.proposers import offered
from app.words import size
from engine.base.sizes import billions
from engine.protocol import CuratedModel, DraftOffer, Recommendation

VERDICTS = {
    "fits": ("runs well here", "good"),
    "tight": ("runs", "warn"),
    "too large": ("too large", "mute"),
    "": ("", "mute"),
}
"""The word for a verdict, and its tone."""


def short_name(model: CuratedModel) -> str:
    """The model's name without its publisher and its format."""
    return model.repository.partition("/")[2].removesuffix("-GGUF").removesuffix("-gguf")


def about(model: CuratedModel) -> str:
    """Strengths of the model, and its figures below them."""
    facts = (
        f"{billions(model.parameters)} parameters" if model.parameters else "",
        "" if model.format == "safetensors" else model.variant,
        size(model.bytes) if model.bytes else "",
        f"context {model.context >> 10}k" if model.context else "",
        licence(model.licence),
        "built-in speculative decoding" if model.draft is not None and not model.draft.repository else "",
    )
    return f"{model.about}\n{' · '.join(filter(None, facts))}"


def verdict(each: Recommendation) -> str:
    """The figures behind the word."""
    if not each.verdict:
        return ""
    takes = f"It takes about {size(each.need)} with a chat of the usual length."
    speed = f" Memory allows about {each.fastest:.2g} tokens a second without speculation." if each.fastest else ""
    return f"{each.sentence or takes + speed}\nEstimated from its size; a search shows what its files take."


def with_draft(each: Recommendation) -> str:
    """Draft that is downloaded with the model; "" if there is none to download."""
    draft = each.model.draft
    if draft is None or not draft.repository:
        return ""
    held = f" ({size(draft.bytes)})" if draft.bytes else ""
    return f"with its {offered(draft.kind)}, {draft.repository}{held}"


def offer(each: DraftOffer) -> str:
    """Kind and size of an offered draft, and the acceptance from which on it pays."""
    facts = [offered(each.kind), size(each.bytes) if each.bytes else ""]
    if each.cost >= 1:
        facts.append("reads more than the model itself")
    elif each.cost:
        facts.append(f"pays when more than {100 * each.cost:.0f} % of its tokens are accepted")
    return " · ".join(filter(None, facts))

"""Texts of the Models page on recommended models and on drafts: pure functions of records."""

from __future__ import annotations

from app.language import known, tr
from app.models.words import licence, parameters
from app.proposers import offered
from app.words import size
from engine.protocol import CuratedModel, DraftOffer, Recommendation

VERDICTS = {
    "fits": (tr("runs well here"), "good"),
    "tight": (tr("runs"), "warn"),
    "too large": (tr("too large"), "mute"),
    "": ("", "mute"),
}
"""The word for a verdict, and its tone."""


def short_name(model: CuratedModel) -> str:
    """The model's name without its publisher and its format."""
    return model.repository.partition("/")[2].removesuffix("-GGUF").removesuffix("-gguf")


def about(model: CuratedModel) -> str:
    """Strengths of the model, and its figures below them."""
    facts = (
        tr("{number} parameters", number=parameters(model.parameters)) if model.parameters else "",
        "" if model.format == "safetensors" else model.variant,
        size(model.bytes) if model.bytes else "",
        tr("context {tokens}k", tokens=model.context >> 10) if model.context else "",
        licence(model.licence),
        tr("built-in speculative decoding") if model.draft is not None and not model.draft.repository else "",
    )
    return f"{known(model.about)}\n{' · '.join(filter(None, facts))}"


def verdict(each: Recommendation) -> str:
    """The figures behind the word."""
    if not each.verdict:
        return ""
    said = [each.sentence or tr("It takes about {size} with a chat of the usual length.", size=size(each.need))]
    if each.fastest and not each.sentence:
        said.append(tr("Memory allows about {rate:.2g} tokens a second without speculation.", rate=each.fastest))
    return f"{' '.join(said)}\n{tr('Estimated from its size; a search shows what its files take.')}"


def with_draft(each: Recommendation) -> str:
    """Draft that is downloaded with the model; "" if there is none to download."""
    draft = each.model.draft
    if draft is None or not draft.repository:
        return ""
    held = f" ({size(draft.bytes)})" if draft.bytes else ""
    return tr("with its {drafter}, {repository}", drafter=offered(draft.kind), repository=draft.repository) + held


def offer(each: DraftOffer) -> str:
    """Kind and size of an offered draft, and the acceptance from which on it pays."""
    facts = [offered(each.kind), size(each.bytes) if each.bytes else ""]
    if each.cost >= 1:
        facts.append(tr("reads more than the model itself"))
    elif each.cost:
        facts.append(tr("pays when more than {share:.0f} % of its tokens are accepted", share=100 * each.cost))
    return " · ".join(filter(None, facts))

"""Recommendation of models that run well here: judged from their sizes alone, by the rule of `fit.py` beside it.

A fit report plans from a model's headers; here nothing is known but what assets/models.json says. So what a model takes
to work with is taken as a share of its size, and where its keys and values are not stated, so are they.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from engine.base.sizes import human
from engine.library.variants import QUANTISATION
from engine.loading.advice.fit import USUAL_CONTEXT
from engine.loading.memory import estimate
from engine.protocol import StoredModel
from engine.protocol.recommended import CuratedModel, Recommendation, SizeFit

WORK_SHARE = 0.05
"""Share of a model's size that it takes to work with, besides what is the same for all."""
KV_SHARE = 0.25
"""Share of a model's size for keys and values of a usual chat where none is listed: 0.24 for Qwen3-8B in 4 bits."""
FOUR_BITS = 0.6
"""Bytes of a parameter in files of 4 bits: Qwen3-8B takes 0.61 in Q4_K_M."""
LEAST_BANDWIDTH = 8e9
"""Bytes a second: no memory of a computer that runs this is slower. Where less was measured, other programs used it."""
READING = 5.0
"""Tokens a second, about as fast as people read; a model that cannot reach it does not run well."""
ORDER = ("fits", "tight", "too large", "")
TO_BEGIN_WITH = 3
BEGIN_SHARE = 0.5
"""Share of the memory that may be used which one of the models to begin with takes at most, so that the rest of the
computer goes on as before."""
LIGHT_BYTES = 1_500_000_000
BEST, SEES, LIGHT = "the best answers that run well here", "chats and sees pictures", "a small download"
ANOTHER, RUNS = "runs well here", "runs here, but not well"


def recommended(
    models: Iterable[CuratedModel], free: int, total: int, bandwidth: float, stored: Sequence[StoredModel] = ()
) -> list[Recommendation]:
    """The models judged, best first: of those that run well the larger ones come first, of those that run the faster
    ones, of those that are too large the smaller ones. A few to begin with have a reason.

    ``free`` and ``total``: bytes of the device's memory; ``bandwidth``: bytes a second that it reads, 0: not measured.
    """
    judged = [judge(model, free, total, bandwidth, stored) for model in models]

    def rank(each: Recommendation) -> tuple[int, float]:
        size = each.model.parameters
        rank = {"fits": -size, "tight": -each.fastest or each.need}.get(each.verdict, size)
        return ORDER.index(each.verdict), rank

    return _with_reasons(sorted(judged, key=rank), BEGIN_SHARE * estimate.budget_bytes(None, free))


def _with_reasons(judged: list[Recommendation], room: float) -> list[Recommendation]:
    """Up to :data:`TO_BEGIN_WITH` of them get a reason: the largest that chats, one that sees, a small one; where these
    are fewer, what else runs. ``room``: bytes that one of them takes at most."""
    well = [each for each in judged if each.verdict == "fits" and each.need <= room]
    chats = [each for each in well if "chat" in each.model.purposes]
    sees = [each for each in well if "vision" in each.model.purposes]
    reasons: dict[tuple[str, str], str] = {}

    def choose(among: Iterable[Recommendation], reason: Callable[[Recommendation], str]) -> None:
        free = (each for each in among if _key(each) not in reasons)
        if len(reasons) < TO_BEGIN_WITH and (first := next(free, None)) is not None:
            reasons[_key(first)] = reason(first)

    choose(chats, lambda each: BEST)
    choose(sees, lambda each: SEES)
    light = [each for each in well if each.model.bytes <= LIGHT_BYTES]
    choose([*(each for each in light if "chat" in each.model.purposes), *light], lambda each: LIGHT)
    for _ in range(TO_BEGIN_WITH):
        choose([*chats, *well, *judged], _else)
    return [msgspec.structs.replace(each, reason=reasons.get(_key(each), "")) for each in judged]


def _key(each: Recommendation) -> tuple[str, str]:
    return each.model.repository, each.model.variant


def _else(each: Recommendation) -> str:
    return {"fits": ANOTHER, "tight": RUNS}.get(each.verdict, "")


def judge(
    model: CuratedModel, free: int, total: int, bandwidth: float, stored: Sequence[StoredModel] = ()
) -> Recommendation:
    """One model of the list; see :func:`recommended`."""
    draft = model.draft
    here = is_here(model.repository, model.variant, stored)
    draft_here = draft is not None and bool(draft.repository) and is_here(draft.repository, draft.variant, stored)
    if not model.bytes:
        return Recommendation(model=model, verdict="", here=here, draft_here=draft_here)
    usual = min(model.context or USUAL_CONTEXT, USUAL_CONTEXT)
    kv = model.kv_bytes or KV_SHARE * model.bytes / USUAL_CONTEXT
    fixed = model.bytes * (1 + WORK_SHARE) + estimate.SCRATCH_BYTES
    need, least = int(fixed + kv * usual), fixed + kv * estimate.LEAST_TOKENS
    share = model.active / model.parameters if model.active and model.parameters else 1.0
    fastest = _undisturbed(bandwidth) / (model.bytes * share)
    fit = _fit(need, least, usual, fastest, free, total)
    return Recommendation(
        model=model,
        verdict=fit.verdict,
        sentence=fit.sentence,
        need=need,
        fastest=fastest,
        here=here,
        draft_here=draft_here,
    )


def judge_stored(model: StoredModel, free: int, total: int, bandwidth: float) -> SizeFit:
    """A model of this machine, of which no more is known than its bytes; all of it is taken to be read for a token."""
    if not model.bytes:
        return SizeFit("")
    fixed = model.bytes * (1 + WORK_SHARE) + estimate.SCRATCH_BYTES
    kv = KV_SHARE * model.bytes / USUAL_CONTEXT
    need, least = int(fixed + kv * USUAL_CONTEXT), fixed + kv * estimate.LEAST_TOKENS
    return _fit(need, least, USUAL_CONTEXT, _undisturbed(bandwidth) / model.bytes, free, total)


def _fit(need: int, least: float, usual: int, fastest: float, free: int, total: int) -> SizeFit:
    """``need``: bytes with a chat of ``usual`` tokens, ``least``: with the shortest one that is served."""
    now, ever = estimate.budget_bytes(None, free), estimate.budget_bytes(None, total)
    if need <= now and (fastest >= READING or not fastest):
        return SizeFit("fits")
    if need <= now:
        return SizeFit("tight", f"It writes {fastest:.2g} tokens a second at most: this memory is not fast enough.")
    if need <= ever:
        said = f"It takes about {human(need)}, and {human(now)} may be used now. Close other programs."
        return SizeFit("tight", said)
    if least <= ever:
        said = f"It takes about {human(need)} for chats of {usual:,} tokens: they have to be shorter."
        return SizeFit("tight", said)
    return SizeFit("too large", f"It takes about {human(need)}, and at most {human(ever)} may be used here.")


def _undisturbed(bandwidth: float) -> float:
    """0 stays: not measured."""
    return max(bandwidth, LEAST_BANDWIDTH) if bandwidth else 0.0


def fitting(size: str, free: int) -> str | None:
    """A range of parameters that `engine.library.hub` takes, without those that do not fit into ``free`` bytes in
    4 bits; None where none of them fits."""
    room = estimate.budget_bytes(None, free) - estimate.SCRATCH_BYTES
    most = max(1, int(room / (FOUR_BITS * (1 + WORK_SHARE + KV_SHARE)) / 1e6))
    least, _, end = size.partition("-")
    if least and _millions(least) > most:
        return None
    if end and _millions(end) <= most:
        return size
    return f"{least}-{most}M"


def _millions(count: str) -> float:
    return float(count[:-1]) * {"K": 1e-3, "M": 1.0, "B": 1e3, "T": 1e6}[count[-1].upper()]


def is_here(repository: str, variant: str, stored: Iterable[StoredModel]) -> bool:
    """Return True if that variant of a repository, by its name or kind, is among the models of this machine."""
    return any(
        each.repository == repository and (each.format == "safetensors" or _is(Path(each.path), variant))
        for each in stored
    )


def _is(file: Path, variant: str) -> bool:
    kind = QUANTISATION.search(file.stem)
    return variant.endswith(file.name) or (kind is not None and kind[1].lower() == variant.lower())

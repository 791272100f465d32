"""Fit of a model to this machine, and its speed here: planned as a load is, without reading weights."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from engine.base import stopping
from engine.cache.pool import PAGE_SIZE
from engine.compute.layers.numerics import Numerics
from engine.decoding.options import EngineOptions
from engine.formats.gguf.checkpoint import GGUFCheckpoint
from engine.loading.advice import speed
from engine.loading.loader import CheckpointLoader
from engine.loading.memory import estimate, nvml
from engine.loading.memory.bandwidth import last_level_bytes, measure_bandwidth
from engine.loading.model import LoadModel
from engine.loading.plan import LoadPlan
from engine.protocol import LoadOptions, keys
from engine.protocol.library import FitReport, HubVariant, KindFit, Suggestion, Verdict

KINDS = ("16bit", "int8", "int4")
"""Kinds of the cache that are planned with; FP8 takes what int8 does."""
USUAL_CONTEXT = 8192
"""Tokens; a model that holds fewer than these, where it could read more, is a tight fit."""
_ORDER: tuple[Verdict, ...] = ("fits", "tight", "too large")
_TRIALS = 6.0
"""Seconds after which the speed of no further variant is measured; what was measured is kept for the next time."""
_PROGRAM = 256 << 20
"""Bytes of a GPU's memory that a program holds which is worth naming."""


class Asked(NamedTuple):
    """Settings that a fit is planned for. ``credit``: bytes that become free when the model that is loaded now is
    dropped. ``trial``: whether speed may be measured, for seconds."""

    name: str = ""
    draft: str = ""
    options: LoadOptions = LoadOptions()
    credit: int = 0
    trial: bool = True


def fit_of(path: Path, asked: Asked = Asked()) -> FitReport:
    """The fit of the model at ``path`` against what is free now. Raises :class:`LoadFailed` for a model that cannot be
    loaded at all; one that is too large is a report."""
    return _report(_open(path, asked), asked)


def fits_of(path: Path, header: HubVariant, variants: Sequence[HubVariant], asked: Asked = Asked()) -> list[FitReport]:
    """The fits of a repository's ``variants``, whose architecture is that of the one at ``path``, ``header``.

    Where they are GGUF files only that one's header was read: of the others the bytes are known, and their matrices are
    assumed to be of the type that their names say. Raises :class:`LoadFailed`.
    """
    opened = _open(path, asked)
    found: dict[str, FitReport] = {}
    began = time.monotonic()
    for each in sorted(variants, key=lambda each: each != header):
        stopping.current().check()
        mine = asked._replace(
            name=f"{asked.name} {each.quantisation}".strip(), trial=asked.trial and time.monotonic() - began < _TRIALS
        )
        report = _report(opened if each == header else _like(opened, header, each), mine)
        assumed = f"Planned from the header of {header.name} and this one's size." if each != header else ""
        found[each.name] = structs.replace(report, variant=each.name, assumed=assumed)
    fitting = [each for each in variants if found[each.name].verdict == "fits"]
    best = max(fitting, key=lambda each: each.bytes, default=None)
    reports = [found[each.name] for each in variants]
    return [
        report
        if best is None or report.verdict == "fits"
        else structs.replace(report, suggestions=[*report.suggestions, _variant(best)])
        for report in reports
    ]


def _open(path: Path, asked: Asked) -> LoadPlan:
    command = LoadModel(str(path), asked.draft, asked.options)
    opened = CheckpointLoader(asked.options.device).find(command, _options(KINDS[-1]), None)
    opened.credit = asked.credit
    return opened


def _options(kind: str) -> EngineOptions:
    options = EngineOptions()
    options.values[keys.KV_KIND] = kind
    return options


def _like(opened: LoadPlan, header: HubVariant, other: HubVariant) -> LoadPlan:
    """``opened`` as another variant of it would be."""
    checkpoint = opened.target.files.checkpoint
    assert isinstance(checkpoint, GGUFCheckpoint), "safetensors have one variant"
    retyped = checkpoint.retyped(other.quantisation)
    more = other.bytes - header.bytes - (retyped.weight_bytes - checkpoint.weight_bytes)
    files = opened.target.files._replace(checkpoint=retyped)
    return replace(opened, target=replace(opened.target, files=files, more_weights=more))


def _report(opened: LoadPlan, asked: Asked) -> FitReport:
    plans, place = _plans(opened), opened.place
    checkpoint, name = opened.target.files.checkpoint, asked.name or opened.target.files.name
    if isinstance(plans, estimate.OutOfMemory):
        large = FitReport(
            name=name,
            verdict="too large",
            sentence=str(plans),
            parameters=checkpoint.parameters,
            context=0,
            longest=opened.limit,
            quantisation=checkpoint.quantisation_title,
            fit=plans.fit,
        )
        return structs.replace(large, suggestions=_suggestions(large, opened, asked))
    kinds = [
        KindFit(kind=each.place.kind.name, bytes_per_token=each.kv_growth, tokens=each.fit.kv_tokens) for each in plans
    ]
    fit, longest, first = plans[0].fit, opened.limit, kinds[0]
    usual = min(longest, USUAL_CONTEXT)
    model = checkpoint.planned(place.dtype, place.packing, place.device)
    kept = speed.served(checkpoint, model, place.device, str(checkpoint.path))
    kept = kept._replace(read=kept.read + opened.target.more_weights)
    ceiling = measure_bandwidth(place.device)
    numerics = Numerics(quantises=asked.options.dtype != "float32")
    EngineOptions().apply_to(numerics)
    computing = place.device, ceiling, place.dtype, place.packing, numerics
    expected = speed.expect(checkpoint, kept, *computing, may_try=asked.trial)
    report = FitReport(
        name=name,
        verdict=_verdict(kinds, usual),
        sentence=_sentence(kinds, longest, usual),
        parameters=checkpoint.parameters,
        quantisation=checkpoint.quantisation_title,
        context=min(longest, first.tokens),
        longest=longest,
        chats=max(1, fit.kv_tokens // max(PAGE_SIZE, usual)),
        fit=fit,
        kinds=kinds,
        read_bytes=kept.read,
        bandwidth=ceiling,
        # What the caches hold is read faster than memory.
        fastest=0.0 if kept.read < last_level_bytes() else ceiling / kept.read,
        decode=expected.decode,
        prefill=expected.prefill,
        source=expected.source,
        draft=expected.draft,
    )
    return structs.replace(report, suggestions=_suggestions(report, opened, asked))


def _plans(opened: LoadPlan) -> list[LoadPlan] | estimate.OutOfMemory:
    """One for each kind of cache with which the model fits; 16 bits alone where its cache can have no other."""
    found: list[LoadPlan] = []
    failed: estimate.OutOfMemory | None = None
    for kind in KINDS[:1] if opened.kind_refused else KINDS:
        planned = replace(opened, place=opened.place._replace(kind=_options(kind).kv_kind))
        try:
            planned.size_up()
        except estimate.OutOfMemory as error:
            failed = error
        else:
            found.append(planned)
    if found:
        return found
    assert failed is not None, "either is true of each kind"
    return failed


def _verdict(kinds: list[KindFit], usual: int) -> Verdict:
    return "fits" if kinds[0].kind == "16bit" and kinds[0].tokens >= usual else "tight"


def _sentence(kinds: list[KindFit], longest: int, usual: int) -> str:
    """Sentence that says what keeps the model from fitting well; "" where nothing does."""
    first = kinds[0]
    if _verdict(kinds, usual) == "fits":
        return ""
    if first.kind != "16bit":
        return "Keys and values have no room in 16 bits."
    if max(each.tokens for each in kinds) >= usual:
        return f"With keys and values in 16 bits there is room for {min(first.tokens, longest):,} tokens."
    return f"There is room for {max(min(each.tokens, longest) for each in kinds):,} tokens at most."


def _suggestions(report: FitReport, opened: LoadPlan, asked: Asked) -> list[Suggestion]:
    """Suggestions that would make the model fit, or fit better, the simplest first."""
    found: list[Suggestion] = []
    usual = min(report.longest, USUAL_CONTEXT)
    if report.verdict == "tight":
        first = report.kinds[0]
        others = report.kinds
        if first.kind == "16bit":  # smaller keys and values may leave room for what drafts, and less for text
            others = [each for each in others if each.tokens > first.tokens]
        for each in others:
            tokens = f"{min(each.tokens, report.longest):,}"
            if each.tokens >= usual or each is others[-1]:
                sentence = f"Set KV cache precision to {each.kind}: it then has room for {tokens} tokens."
                found.append(Suggestion(kind="kv_kind", sentence=sentence, value=each.kind))
                break
        if first.kind == "16bit" and first.tokens < report.longest:
            sentence = f"Or keep 16 bits: a text then has {first.tokens:,} tokens at most."
            found.append(Suggestion(kind="context", sentence=sentence, value=str(first.tokens)))
    if asked.credit and report.fit is not None and _better(report, opened):
        sentence = f"This counts the {estimate.size(asked.credit)} of the model that is loaded: it is unloaded first."
        found.append(Suggestion(kind="unload", sentence=sentence, value=str(asked.credit)))
    if report.verdict != "fits":
        for name, held in nvml.programs(opened.place.device, os.getpid()):
            if held >= _PROGRAM:
                sentence = f"Close {name}, which holds {estimate.size(held)} of the GPU's memory."
                found.append(Suggestion(kind="programs", sentence=sentence, value=str(held)))
        if not found and report.verdict == "tight":
            found.append(Suggestion(kind="programs", sentence="Close other programs.", value="0"))
    return found


def _better(report: FitReport, opened: LoadPlan) -> bool:
    """Return True if the model fits less well without the credit."""
    plans = _plans(replace(opened, credit=0))
    if isinstance(plans, estimate.OutOfMemory):
        return report.verdict != "too large"
    kinds = [KindFit(kind=each.place.kind.name, bytes_per_token=0, tokens=each.fit.kv_tokens) for each in plans]
    without = _verdict(kinds, min(report.longest, USUAL_CONTEXT))
    return _ORDER.index(without) > _ORDER.index(report.verdict)


def _variant(best: HubVariant) -> Suggestion:
    sentence = f"{best.quantisation or best.name} of the same model fits ({estimate.size(best.bytes)})."
    return Suggestion(kind="variant", sentence=sentence, value=best.name)

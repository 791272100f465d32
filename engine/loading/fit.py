"""Whether a model fits this machine, and how fast it is at best: planned as a load is, without reading weights."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from engine.cache.pool import PAGE_SIZE
from engine.checkpoints.open import open_checkpoint
from engine.loading.loader import CheckpointLoader
from engine.loading.model import LoadFailed, LoadModel
from engine.memory import estimate
from engine.memory.bandwidth import last_level_bytes, measure_bandwidth
from engine.options import EngineOptions
from engine.protocol import LoadOptions, keys
from engine.protocol.library import FitReport, KindFit

KINDS = ("16bit", "int8", "int4")
"""Of the cache, that are planned with; FP8 takes what int8 does."""
USUAL_CONTEXT = 8192
"""Tokens; a model that holds fewer than these, where it could read more, is a tight fit."""


def fit_of(path: Path, draft: str = "", options: LoadOptions | None = None, name: str = "") -> FitReport:
    """The fit of the model at ``path`` against what is free now. Raises :class:`LoadFailed` for a model that cannot be
    loaded at all; one that is too large is a report."""
    options = options or LoadOptions()
    asked = [EngineOptions() for _ in KINDS]
    for each, kind in zip(asked, KINDS, strict=True):
        each.values[keys.KV_KIND] = kind
    name = name or path.name
    try:  # the headers are read once, with the kind that takes the least
        least = CheckpointLoader(options.device).open(LoadModel(str(path), draft, options), asked[-1], None)
    except LoadFailed as failed:
        if failed.code != "out_of_memory":
            raise
        parameters = open_checkpoint(path, need_tokenizer=False).parameters
        return FitReport(
            name=name, verdict="too large", sentence=str(failed), parameters=parameters, context=0, longest=0
        )
    plans = {least.kind.name: least}  # that of 16 bits where the model's cache can have no other
    for each in () if least.kind_refused else asked[:-1]:
        with contextlib.suppress(estimate.OutOfMemory):
            other = replace(least, kind=each.kv_kind)
            other.size_up()
            plans[other.kind.name] = other
    fitting = [(kind, plans[kind]) for kind in KINDS if kind in plans]
    kinds = [KindFit(kind=kind, bytes_per_token=each.kv_growth, tokens=each.fit.kv_tokens) for kind, each in fitting]
    opened = fitting[0][1]
    fit, checkpoint = opened.fit, opened.target.checkpoint
    longest = opened.limit
    room = min(longest, fit.kv_tokens)
    usual = min(longest, USUAL_CONTEXT)
    model = checkpoint.planned(opened.dtype, opened.packing, opened.device)
    read = model.bytes_read_per_step()
    first = kinds[0]
    ceiling = measure_bandwidth(opened.device)
    return FitReport(
        name=name,
        verdict="fits" if first.kind == "16bit" and room >= usual else "tight",
        sentence=_sentence(first, kinds, longest, usual),
        parameters=checkpoint.parameters,
        quantisation=checkpoint.quantisation_title,
        context=room,
        longest=longest,
        chats=max(1, fit.kv_tokens // max(PAGE_SIZE, usual)),
        fit=fit,
        kinds=kinds,
        read_bytes=read,
        bandwidth=ceiling,
        # What the caches hold is read faster than memory.
        fastest=0.0 if read < last_level_bytes() else ceiling / read,
    )


def _sentence(first: KindFit, kinds: list[KindFit], longest: int, usual: int) -> str:
    """What keeps it from fitting well, and what would help; "" where nothing does."""
    if first.kind == "16bit" and first.tokens >= usual:
        return ""
    better = [each for each in kinds if each.tokens >= usual]
    if better:
        return (
            f"With keys and values in 16 bits there is room for {_room(first, longest)} tokens: set KV cache precision "
            f"to {better[0].kind}, and it is {min(better[0].tokens, longest):,}."
        )
    return (
        f"There is room for {max(min(each.tokens, longest) for each in kinds):,} tokens at most. Close other programs."
    )


def _room(first: KindFit, longest: int) -> str:
    return f"{min(first.tokens, longest):,}" if first.kind == "16bit" else "no"

"""Whether a model fits this machine, and how fast it is at best: planned as a load is, without reading weights."""

from __future__ import annotations

from pathlib import Path

from engine.cache.pool import PAGE_SIZE
from engine.checkpoints.open import open_checkpoint
from engine.loading.loader import CheckpointLoader, OpenedCheckpoint
from engine.loading.model import LoadFailed, LoadModel
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
    kinds: list[KindFit] = []
    opened: OpenedCheckpoint | None = None
    refusal = ""
    loader = CheckpointLoader(options.device)
    for kind in KINDS:
        chosen = EngineOptions()
        chosen.values[keys.KV_KIND] = kind
        try:
            planned = loader.open(LoadModel(str(path), draft, options), chosen, None)
        except LoadFailed as failed:
            if failed.code != "out_of_memory":
                raise
            refusal = refusal or str(failed)
            continue
        if planned.kind.name != kind:  # a model whose cache has no such kind
            continue
        opened = opened or planned
        kinds.append(KindFit(kind=kind, bytes_per_token=planned.kv_growth, tokens=planned.fit.kv_tokens))
    name = name or path.name
    if opened is None:
        checkpoint = open_checkpoint(path, need_tokenizer=False)
        return FitReport(
            name=name, verdict="too large", sentence=refusal, parameters=checkpoint.parameters, context=0, longest=0
        )
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

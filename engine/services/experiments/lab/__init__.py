"""The experiments, from easy to hard."""

from __future__ import annotations

from engine.services.experiments.experiment import Experiment
from engine.services.experiments.lab import (
    batch_size,
    batching,
    chunked,
    heads,
    kivi,
    kv_cache,
    mlfq,
    paging,
    prefixes,
    quest,
    speculation,
    weights,
    window,
)

ALL: tuple[Experiment, ...] = (
    kv_cache.KVCache(),
    weights.Weights(),
    paging.Paging(),
    kivi.Kivi(),
    quest.QuestExperiment(),
    window.Window(),
    prefixes.Prefixes(),
    batching.Batching(),
    batch_size.BatchSize(),
    chunked.ChunkedPrefill(),
    mlfq.FeedbackQueues(),
    speculation.Speculation(),
    heads.HeadsExperiment(),
)
BY_NAME = {each.page.name: each for each in ALL}

"""The ten experiments, from easy to hard."""

from __future__ import annotations

from engine.lab.experiment import Experiment
from engine.lab.experiments import kv_cache, paging, prefixes, weights, window

ALL: tuple[Experiment, ...] = (
    kv_cache.KVCache(),
    weights.Weights(),
    paging.Paging(),
    window.Window(),
    prefixes.Prefixes(),
)
BY_NAME = {each.page.name: each for each in ALL}

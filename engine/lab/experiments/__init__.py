"""The ten experiments, from easy to hard."""

from __future__ import annotations

from engine.lab.experiment import Experiment
from engine.lab.experiments import batching, heads, prefixes, speculation

ALL: tuple[Experiment, ...] = (prefixes.Prefixes(), batching.Batching(), speculation.Speculation(), heads.Heads())
BY_NAME = {each.page.name: each for each in ALL}

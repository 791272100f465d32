"""The ten experiments, from easy to hard."""

from __future__ import annotations

from engine.lab.experiment import Experiment
from engine.lab.experiments import prefixes

ALL: tuple[Experiment, ...] = (prefixes.Prefixes(),)
BY_NAME = {each.page.name: each for each in ALL}

"""The ten experiments, from easy to hard."""

from __future__ import annotations

from engine.lab.experiment import Experiment
from engine.lab.experiments import kivi, prefixes, quest

ALL: tuple[Experiment, ...] = (kivi.Kivi(), quest.Quest(), prefixes.Prefixes())
BY_NAME = {each.page.name: each for each in ALL}

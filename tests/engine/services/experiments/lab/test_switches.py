"""The switches of the panel and the experiments that show what they do."""

from __future__ import annotations

from engine import catalogue
from engine.services.experiments.lab import ALL, BY_NAME


def test_switches_name_experiments_that_there_are() -> None:
    every = catalogue.state(catalogue.defaults(), frozenset())
    assert {spec.lab for spec in every} - {""} <= set(BY_NAME)
    assert sorted(spec.key for spec in every if spec.common) == [
        "disk_cache",
        "kv_kind",
        "prefix_cache",
        "speculation",
        "weights",
    ]


def test_what_an_experiment_sets_leads_back_to_one() -> None:
    for experiment in ALL:
        assert all(catalogue.BY_KEY[key].lab for key in experiment.page.use), experiment.page.name

"""The switches of the panel and the experiments that show what they do."""

from __future__ import annotations

from engine import catalogue
from engine.services.experiments.lab import ALL, BY_NAME


def test_switches_name_experiments_that_there_are() -> None:
    every = catalogue.state(catalogue.defaults(), frozenset())
    assert {spec.measure.lab for spec in every} - {""} <= set(BY_NAME)
    assert sorted(spec.key for spec in every if spec.common) == [
        "disk_cache",
        "kv_kind",
        "prefix_cache",
        "speculation",
        "weights",
    ]


def test_a_switch_leads_to_an_experiment_that_shows_it() -> None:
    for key in {key for experiment in ALL for key in experiment.page.keys}:
        shows = {experiment.page.name for experiment in ALL if key in experiment.page.keys}
        assert catalogue.option(key).measure.lab in shows, key

"""A scheduling policy in one file: the newest request first, and the oldest gives way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine import catalogue
from engine.catalogue import Choice, Technique
from engine.decoding.scheduling import policy
from engine.decoding.scheduling.policy import S
from tests.extending.busy_engine import check


class NewestFirst:
    def __init__(self) -> None:
        self.victims: list[int] = []

    def admission_order(self, waiting: Sequence[S], found: Callable[[S], int]) -> Sequence[S]:
        return sorted(waiting, key=lambda sequence: -sequence.arrival)

    def victim(self, holders: Sequence[S]) -> S:
        chosen = min(holders, key=lambda sequence: sequence.arrival)
        self.victims.append(chosen.arrival)
        return chosen


@pytest.mark.slow
def test_a_scheduling_policy(model: Path) -> None:
    newest = policy.POLICIES["newest"] = NewestFirst()
    catalogue.register(Technique(switch="admission", choice=Choice("newest", "Newest first")))
    served = check(model, {"admission": "newest"})
    assert "newest" in served.shown("admission")
    assert newest.victims
    assert max(newest.victims) < 6, "the newest never gave way"

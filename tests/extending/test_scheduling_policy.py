"""A scheduling policy in one folder: the shortest remaining request first."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import catalogue
from tests.contracts.scheduling_policy import SchedulingPolicyContract
from tests.extending.busy_engine import check
from tests.extending.shortest.policy import TECHNIQUE, ShortestRemaining


class TestShortestRemaining(SchedulingPolicyContract):
    policy = ShortestRemaining


@pytest.mark.slow
def test_a_scheduling_policy(model: Path) -> None:
    catalogue.register(TECHNIQUE)
    served = check(model, {"admission": "shortest"})
    assert "shortest" in served.shown("admission")

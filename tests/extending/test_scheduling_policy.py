"""A scheduling policy in one folder: the smallest prompt first."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import catalogue
from tests.contracts.scheduling_policy import SchedulingPolicyContract
from tests.extending.busy_engine import check
from tests.extending.smallest.policy import TECHNIQUE, SmallestPrompt


class TestSmallestPrompt(SchedulingPolicyContract):
    policy = SmallestPrompt


@pytest.mark.slow
def test_a_scheduling_policy(model: Path) -> None:
    catalogue.register(TECHNIQUE)
    served = check(model, {"admission": "smallest"})
    assert "smallest" in served.shown("admission")

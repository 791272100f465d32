"""Kill -9 of the window and of the engine, a few times; ``python -m tests.app.kills`` does it more often."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.app import kills

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
    pytest.mark.timeout(1800),  # a busy machine takes a minute for each start of the engine
]


@pytest.mark.slow
def test_a_killed_window_loses_nothing(tmp_path: Path) -> None:
    found = kills.kill_windows(tmp_path / "home", 5, random.Random(7))
    assert found.failures == 0, found
    assert (found.kills, found.questions >= 5) == (5, True)


@pytest.mark.slow
def test_a_killed_engine_costs_nothing_that_was_shown(tmp_path: Path) -> None:
    found = kills.kill_engines(tmp_path / "home", 5, seed=7)
    assert found.failures == 0, found
    assert (found.kills, found.questions >= 5) == (5, True)

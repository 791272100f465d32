"""Slots of layers with a sliding window: every row finds its window, whatever comes, goes, forks and gives way."""

from __future__ import annotations

import random

import pytest
from sequences_support import Asked, House
from test_sequences import Fuzz, prompt, run

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.slots import WindowSlots, first_seen
from engine.cache.windowed import WindowedCache, WindowedManager
from engine.scheduling.scheduler import Limits


@pytest.mark.parametrize("seed", range(60))
def test_any_history_leaves_everybody_their_own_window(seed: int) -> None:
    Fuzz(seed, windows=True).play(150)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_thousand_operations_with_windows(part: int) -> None:
    for seed in range(20):
        Fuzz(1000 * (part + 1) + seed, windows=True).play(500)

"""A page policy in one file: a row sees its own page and the two before it; every page is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import catalogue
from engine.cache import policies
from engine.cache.policies import PagePolicy, RowSights
from engine.cache.pool import PAGE_SIZE
from engine.catalogue import Choice, Technique
from tests.extending.busy_engine import Served, check


class ThreePages(PagePolicy):
    name = "three_pages"
    title = "three pages"

    def restricts(self, stop: int) -> bool:
        return stop > 3 * PAGE_SIZE

    def sights(self, index: np.ndarray) -> RowSights:
        first = np.maximum(0, index // PAGE_SIZE - 2) * PAGE_SIZE
        return RowSights(first, np.zeros_like(index), index)

    def shareable(self, known: int) -> int:
        """Beyond the first layer keys and values follow from what rows saw, which others see more of."""
        return 0


@pytest.mark.slow
def test_a_page_policy(model: Path) -> None:
    policies.POLICIES["three_pages"] = lambda settings: ThreePages()
    catalogue.register(
        Technique(switch="page_policy", choice=Choice("three_pages", "Three pages", exactness="approximate"))
    )
    served = check(model, {"page_policy": "three_pages"}, shares=False)
    assert "three_pages" in served.shown("page_policy")
    plain = Served(model, {})
    plain.ask(1, {})
    plain.run()
    assert plain.text(1) != served.text(1), "what rows do not see makes another text"

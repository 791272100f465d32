"""The policy of QUEST: each head reads the pages whose keys may score highest."""

from __future__ import annotations

import numpy as np

from engine.cache.policies import KEEP_ALL, PagePolicy
from engine.cache.pool import PAGE_SIZE


class QuestPolicy(PagePolicy):
    """Rows of the answer read `budget` tokens' worth of pages in each head (Tang et al. 2024, arXiv 2406.10774).

    Rows of the prompt read everything, whenever they are computed; so does a row with no more pages than the budget. A
    row's own page counts. Which pages the others are, attention finds out (engine/compute/attention/quest.py).
    """

    name = "quest"
    branches = False  # rows that choose pages are verified one after the other
    companion = KEEP_ALL

    def __init__(self, budget: int, prompt_length: int) -> None:
        """Raises ValueError for a budget of less than one page."""
        if budget < PAGE_SIZE:
            raise ValueError(f"a budget of {budget} tokens is less than one page of {PAGE_SIZE}")
        self.pages, self.prompt_length = budget // PAGE_SIZE, prompt_length
        self.title = f"{self.pages * PAGE_SIZE:,} tokens a head (QUEST)"

    def restricts(self, stop: int) -> bool:
        """Implements `PagePolicy.restricts`."""
        return stop > max(self.prompt_length, self.pages * PAGE_SIZE)

    def chosen(self, index: np.ndarray) -> np.ndarray:
        """Implements `PagePolicy.chosen`."""
        return np.where((index >= self.prompt_length) & (index // PAGE_SIZE >= self.pages), self.pages, 0)

    def shareable(self, known: int) -> int:
        """Implements `PagePolicy.shareable`: rows that choose pages compute other keys and values."""
        return min(known, self.prompt_length)

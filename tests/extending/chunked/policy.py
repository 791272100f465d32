"""Attention within chunks of the text, as the local layers of Llama 4 have it: a row sees what its own chunk holds."""

from __future__ import annotations

import numpy as np

from engine.cache.policies import PagePolicy, RowSights
from engine.cache.pool import PAGE_SIZE, pages_for


class Chunked(PagePolicy):
    """Pages of a chunk that is over are let go."""

    name = "chunked"
    branches = False

    def __init__(self, tokens: int) -> None:
        """``tokens`` of a chunk are whole pages."""
        self.tokens = self.longest_chunk = tokens // PAGE_SIZE * PAGE_SIZE
        self.title = f"chunks of {self.tokens:,} tokens"

    def restricts(self, stop: int) -> bool:
        return stop > self.tokens

    def sights(self, index: np.ndarray) -> RowSights:
        return RowSights(index // self.tokens * self.tokens, np.zeros_like(index), index)

    def dead_pages(self, committed: int) -> tuple[int, int]:
        return 0, committed // self.tokens * self.tokens // PAGE_SIZE

    def kept_pages(self, length: int) -> int:
        return min(pages_for(length), self.tokens // PAGE_SIZE + 1)

    def shareable(self, known: int) -> int:
        """Its pages have gaps."""
        return 0

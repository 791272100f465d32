"""What a feature head's arena holds of each request's text, and what it still has to read.

Entry i of a text is made of the target's features after token i and of the token that came next. Features come with
every step (`Proposer.see`), in order; the arena is brought up to them before the next guess. Entries may be missing,
where a prefix was found in the cache that no head had read to its end: features of its rows were never computed, so
those entries stay missing, and rows of the head do not see them. Guesses get worse; the text does not change, because
the target alone decides it.

The last entry of a prefix that was found there may have been made with another next token than this text has. It is
left so: one key of many, and only guesses see it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from engine.cache.policies import PagePolicy, RowSights, beside
from engine.cache.pool import PAGE_SIZE
from engine.core.request import Request


class HeadSight:
    """The request's own policy, and besides no key between ``known`` and ``start``, where the arena has no entries.

    Nor one of a page that is gone: the head reads rows after the target has, when a window may have moved on.
    """

    name = "head"
    title = "what the head has read"

    def __init__(self, own: PagePolicy, start: int, alive: int = 0, known: int = 0) -> None:
        """``alive`` is the first index after the pages that were dropped between the sinks and the window."""
        self.own, self.start, self.alive, self.known = own, start, alive, known

    def restricts(self, stop: int) -> bool:
        """See `PagePolicy.restricts`."""
        return self.start > 0 or self.alive > 0 or self.own.restricts(stop)

    def sights(self, index: np.ndarray) -> RowSights:
        """See `PagePolicy.sights`. What is known before the gap is seen as sinks are, where a window has not begun to
        hide it, from the row's own position."""
        own = self.own.sights(index)
        first = np.maximum(own.first, max(self.start, self.alive))
        if self.start == 0:
            return own._replace(first=first)
        known = np.where(own.first > 0, np.minimum(own.sinks, self.known), self.known)
        return RowSights(first, known, own.sink_positions)

    def chosen(self, index: np.ndarray) -> np.ndarray | None:
        """See `PagePolicy.chosen`: a head has one small layer and reads all pages."""
        return None

    def dead_pages(self, committed: int) -> tuple[int, int]:
        """See `PagePolicy.dead_pages`: pages belong to the request, not to the head."""
        return 0, 0

    def kept_pages(self, length: int) -> int:
        """See `PagePolicy.kept_pages`."""
        return self.own.kept_pages(length)


@dataclass(slots=True)
class HeadText:
    """One request's. The arena holds the entries [0, known) and [first, held); nothing is missing where ``first`` is 0.

    Features of the rows from ``held`` on are waiting.
    """

    request: Request
    known: int = 0
    first: int = 0
    held: int = 0
    output: Tensor | None = None
    """[hidden_size]: the head's output for entry ``held - 1``."""
    preemptions: int = 0
    _waiting: deque[Tensor] = field(default_factory=deque)
    _rows: int = 0

    @property
    def waiting(self) -> int:
        """Rows whose features wait to be read."""
        return self._rows

    @property
    def policy(self) -> PagePolicy:
        """What the head's rows see of the sequence."""
        dead, alive = self.request.dead_pages
        own = beside(self.request.options.policy)
        return HeadSight(own, self.first, alive * PAGE_SIZE if alive > dead else 0, self.known)

    def settle(self, start: int) -> None:
        """The next row whose features come, or could have come, is ``start``: drop what does not lead up to it.

        Where that is not where the arena and what waits end, the text fell back (preempted and computed again) or
        began with a prefix from the cache; ``request.drafts`` says whether the pages have the entries before it.
        """
        fits = start == self.held + self._rows
        # Pages whose text another request had computed too gave way to that one's, which no head may have read.
        lost = self.first == 0 and self.request.drafts.head < self.held
        if fits and not lost and self.preemptions == self.request.preemptions:
            return
        if not fits:
            self._waiting.clear()
            self._rows = 0
            self.held, self.output = start, None
        # What a request that was sent away held of its own, nobody vouches for: its pages may be others now.
        self.preemptions = self.request.preemptions
        self.first, self.known = 0, self.request.drafts.head
        if self.known < self.held:
            self.first = self.held

    def share(self, other: HeadText) -> None:
        """What another answer to the same prompt, from whose pages this one went on, has read of it since."""
        if not self.first or other.first:
            return
        pairs = zip(self.request.pages[: self.first // PAGE_SIZE], other.request.pages, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.known = max(self.known, min(alike * PAGE_SIZE, other.held))

    def add(self, start: int, features: Tensor, most: int) -> None:
        """Features ``[n, hidden_size]`` of the rows from ``start`` on; of those that wait at most ``most`` are kept.

        A request that does not guess for a long time would pile them up. The oldest go; their entries are missing.
        """
        self.settle(start)
        self._waiting.append(features)
        self._rows += features.shape[0]
        if self._rows > most:
            self._drop(self._rows - most)
            self.known = self.request.drafts.head
            self.first, self.output = self.held, None

    def next(self, rows: int) -> Tensor:
        """The first ``rows`` features that wait ``[rows, hidden_size]``."""
        pieces: list[Tensor] = []
        for piece in self._waiting:
            if rows <= 0:
                break
            pieces.append(piece[:rows])
            rows -= piece.shape[0]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def read(self, rows: int, output: Tensor) -> None:
        """The first ``rows`` that waited are entries of the arena now; ``output [hidden_size]`` is that of the last."""
        self._drop(rows)
        self.output = output
        if self.first == 0:
            self.request.drafts = self.request.drafts._replace(head=self.held)

    def _drop(self, rows: int) -> None:
        self._rows -= rows
        self.held += rows
        while rows:
            piece = self._waiting.popleft()
            if piece.shape[0] > rows:
                self._waiting.appendleft(piece[rows:])
            rows -= min(rows, piece.shape[0])

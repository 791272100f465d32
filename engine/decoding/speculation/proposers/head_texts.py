"""Entries that a feature head's arena holds for each request, and those that it still has to read.

Entry i of a text is made of the target's features after token i and of the token that came next. Features come with
every step (`Proposer.see`), in order; the head reads them into its arena before it drafts again. Entries may be
missing where a cached prefix was reused that no head had read to its end: the features of its rows were never computed,
so those entries stay missing, and rows of the head do not attend to them. Draft quality drops; the text does not
change, because the target alone decides it.

The last entry of a reused prefix may have been made with another next token than this text has. It is left so: it is
one key of many, and it affects drafts only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from engine.cache.policies import PagePolicy, RowSights
from engine.cache.pool import PAGE_SIZE
from engine.decoding.request import Request


class HeadSight(PagePolicy):
    """The request's own policy; it also hides the keys between ``known`` and ``start``, where the arena has no entries.

    A head has one small layer and reads all pages; they belong to the request, and none of them dies here.

    Keys of dropped pages are hidden too: the head reads rows after the target, when a window may have moved on.
    """

    name = "head"
    title = "what the head has read"

    def __init__(self, own: PagePolicy, start: int, alive: int = 0, known: int = 0) -> None:
        """``alive`` is the first index after the pages that were dropped between the sinks and the window."""
        self.own, self.start, self.alive, self.known = own, start, alive, known

    def restricts(self, stop: int) -> bool:
        """Implements `PagePolicy.restricts`."""
        return self.start > 0 or self.alive > 0 or self.own.restricts(stop)

    def sights(self, index: np.ndarray) -> RowSights:
        """Implements `PagePolicy.sights`. The entries before the gap are seen as sinks are, from the row's own
        position, unless a window hides them."""
        own = self.own.sights(index)
        first = np.maximum(own.first, max(self.start, self.alive))
        if self.start == 0:
            return own._replace(first=first)
        known = np.where(own.first > 0, np.minimum(own.sinks, self.known), self.known)
        return RowSights(first, known, own.sink_positions)


def sight_of(request: Request, start: int = 0, known: int = 0) -> HeadSight:
    """Policy that says what a head sees of a request, whose keys between ``known`` and ``start`` are missing."""
    dead, alive = request.cache.dead_pages
    own = request.options.policy.companion
    return HeadSight(own, start, alive * PAGE_SIZE if alive > dead else 0, known)


@dataclass(slots=True)
class HeadText:
    """The state of one request: the arena holds the entries [0, known) and [first, held), all where ``first`` is 0.

    Features of the rows from ``held`` on are waiting to be read.
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
        """The number of rows whose features wait to be read."""
        return self._rows

    @property
    def policy(self) -> PagePolicy:
        """The keys of the sequence that the head's rows attend to."""
        return sight_of(self.request, self.first, self.known)

    def settle(self, start: int) -> None:
        """Prepare for features from row ``start`` on; entries and waiting features that do not end there are dropped.

        They end elsewhere where the request was preempted and is computed again, or began with a cached prefix;
        ``SequenceCache.drafts`` says whether the pages hold the entries before ``start``.
        """
        fits = start == self.held + self._rows
        # Pages may have been replaced by another request's with the same text, which the head may not have read.
        lost = self.first == 0 and self.request.cache.drafts.head < self.held
        if fits and not lost and self.preemptions == self.request.standing.preemptions:
            return
        if not fits:
            self._waiting.clear()
            self._rows = 0
            self.held, self.output = start, None
        # After preemption the request's pages may be different ones, so that only ``drafts.head`` counts.
        self.preemptions = self.request.standing.preemptions
        self.first, self.known = 0, self.request.cache.drafts.head
        if self.known < self.held:
            self.first = self.held

    def share(self, other: HeadText) -> None:
        """Extend ``known`` to the entries of ``other``, another answer to the same prompt, on the pages both share."""
        if not self.first or other.first:
            return
        pairs = zip(self.request.pages[: self.first // PAGE_SIZE], other.request.pages, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.known = max(self.known, min(alike * PAGE_SIZE, other.held))

    def add(self, start: int, features: Tensor, most: int) -> None:
        """Queue features ``[n, hidden_size]`` of the rows from ``start`` on; at most ``most`` waiting rows are kept.

        A request that does not draft for a long time would pile them up. The oldest are dropped, and their entries stay
        missing.
        """
        self.settle(start)
        self._waiting.append(features)
        self._rows += features.shape[0]
        if self._rows > most:
            self._drop(self._rows - most)
            self.known = self.request.cache.drafts.head
            self.first, self.output = self.held, None

    def next(self, rows: int) -> Tensor:
        """The features of the first ``rows`` waiting rows, ``[rows, hidden_size]``."""
        pieces: list[Tensor] = []
        for piece in self._waiting:
            if rows <= 0:
                break
            pieces.append(piece[:rows])
            rows -= piece.shape[0]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def read(self, rows: int, output: Tensor) -> None:
        """Count the first ``rows`` waiting rows as entries; ``output [hidden_size]`` is the head's for the last."""
        self._drop(rows)
        self.output = output
        if self.first == 0:
            self.request.cache.drafts = self.request.cache.drafts._replace(head=self.held)

    def _drop(self, rows: int) -> None:
        self._rows -= rows
        self.held += rows
        while rows:
            piece = self._waiting.popleft()
            if piece.shape[0] > rows:
                self._waiting.appendleft(piece[rows:])
            rows -= min(rows, piece.shape[0])

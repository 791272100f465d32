"""Sequences that hold as much text as a case wants."""

from __future__ import annotations

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.loading.model import LoadedModel
from engine.services.experiments.measures.verify import Sequences


class HeldSequences(Sequences):
    """See :class:`Sequences`; what a sequence holds is kept from one case to the next."""

    def __init__(self, model: LoadedModel, streams: int, tokens: int) -> None:
        super().__init__(model, streams, tokens)
        self._held = [0] * streams

    def spread(self, tokens: int) -> None:
        """Give each sequence room for ``tokens`` tokens, directly behind the one before: like a pool's, pages that one
        case has written serve the next, and no more memory is touched than each needs by itself."""
        pages = pages_for(tokens)
        if pages != self._pages:
            self._held = [min(self._held[0], pages * PAGE_SIZE), *(0 for _ in self._held[1:])]
            self._pages = pages

    def prompt(self, tokens: int, chunk: int, start: int = 0) -> None:
        """Compute the first sequence from place ``start`` to ``tokens``, in steps of at most ``chunk`` tokens."""
        for place in range(start, tokens, chunk):
            rows = min(chunk, tokens - place)
            self.forward(1, rows, place, 1)
        self._held[0] = max(self._held[0], tokens)

    def hold(self, streams: int, tokens: int, chunk: int) -> None:
        """Let each of the first ``streams`` sequences hold ``tokens`` tokens: those of the first one, copied."""
        if self._held[0] < tokens:
            self.prompt(tokens, chunk, self._held[0])
        for number in range(1, streams):
            for place in range(self._held[number] // PAGE_SIZE, pages_for(tokens)):
                self.runner.kv.copy_page(self.pages_of(0)[place], self.pages_of(number)[place])
            if self.runner.kv.states is not None and self._held[number] < tokens:
                self.runner.kv.states.copy_page(1, 1 + number)
            self._held[number] = max(self._held[number], tokens)

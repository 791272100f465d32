"""Steps of the model alone, without scheduler and sampler, on sequences of a given length."""

from __future__ import annotations

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.sampling.sampler import likeliest
from engine.loading.model import LoadedModel
from engine.loading.runners import new_runner


class Sequences:
    """``streams`` sequences of at most ``tokens`` tokens each, in arenas of their own, which share no page.

    The model must be one with arenas of its own kind.
    """

    def __init__(self, model: LoadedModel, streams: int, tokens: int) -> None:
        assert model.model is not None
        self._vocabulary = model.card.vocabulary
        self._pages = pages_for(tokens)
        self._runner = new_runner(model.model, streams * self._pages + 1, model.device, state_slots=streams + 1)
        self._held = [0] * streams

    def forward(self, streams: int, rows: int, start: int, want_logits: int) -> list[int]:
        """A step of ``rows`` tokens from place ``start`` on in each of the first ``streams`` sequences.

        The likeliest tokens after each one's last ``want_logits`` rows come to the host, as sampling and verification
        need them.
        """
        batch = [
            SequenceRows(
                [(31 * number + 7 * place) % self._vocabulary for place in range(start, start + rows)],
                start,
                self._pages_of(number),
                want_logits=want_logits,
                states=StateRun.alone(rows, start, 1 + number),
            )
            for number in range(streams)
        ]
        return likeliest(self._runner.forward(batch).logits)

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
                self._runner.kv.copy_page(self._pages_of(0)[place], self._pages_of(number)[place])
            if self._runner.kv.states is not None and self._held[number] < tokens:
                self._runner.kv.states.copy_page(1, 1 + number)
            self._held[number] = max(self._held[number], tokens)

    def _pages_of(self, number: int) -> range:
        return range(1 + number * self._pages, 1 + (number + 1) * self._pages)

"""Cost of verification by itself: a forward of several rows for each answer, compared with one row for each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.cache.pool import pages_for
from engine.cache.types import StateRun
from engine.compute.batch import SequenceRows
from engine.compute.sampling.sampler import likeliest
from engine.loading.model import LoadedModel
from engine.loading.runners import new_runner
from engine.services.experiments.measures.timing import median_ratio, timed
from engine.services.experiments.reports.speculation import VerifyRow

ROWS = (1, 2, 3, 5, 9, 17, 33)
BATCHES = (1, 8)
CONTEXT = 128
"""Tokens that each answer has before these rows."""


def measure_verify(
    model: LoadedModel, rounds: int, rows: Sequence[int] = ROWS, batches: Sequence[int] = BATCHES
) -> list[VerifyRow]:
    """Medians of ratios within a round, over arenas of their own; nothing where the model has none of its own kind."""
    if model.model is None or model.model.config.positions.max_position < CONTEXT + max(rows):
        return []
    found = []
    for batch in batches:
        sequences = Sequences(model, batch, CONTEXT + max(rows))
        sequences.forward(batch, CONTEXT, 0, 1)
        seconds: dict[int, list[float]] = {count: [] for count in rows}
        for _ in range(5 * rounds + 1):
            for count in rows:
                with timed() as forward:
                    sequences.forward(batch, count, CONTEXT, count)
                seconds[count].append(forward.seconds)
        plain = seconds[rows[0]][1:]
        ms = 1000 * statistics.median(plain)
        found += [VerifyRow(batch, count, median_ratio(seconds[count][1:], plain), ms) for count in rows]
    return found


class Sequences:
    """``streams`` sequences of at most ``tokens`` tokens each, in arenas of their own, which share no page.

    The model must be one with arenas of its own kind.
    """

    def __init__(self, model: LoadedModel, streams: int, tokens: int) -> None:
        assert model.model is not None
        self._vocabulary = model.card.vocabulary
        self._pages = pages_for(tokens)
        self.runner = new_runner(
            model.model, streams * self._pages + 1, model.device, context=tokens, state_slots=streams + 1
        )

    def forward(self, streams: int, rows: int, start: int, want_logits: int) -> list[int]:
        """A step of ``rows`` tokens from place ``start`` on in each of the first ``streams`` sequences.

        The likeliest tokens after each one's last ``want_logits`` rows come to the host, as sampling and verification
        need them.
        """
        batch = [
            SequenceRows(
                [(31 * number + 7 * place) % self._vocabulary for place in range(start, start + rows)],
                start,
                self.pages_of(number),
                want_logits=want_logits,
                states=StateRun.alone(rows, start, 1 + number),
            )
            for number in range(streams)
        ]
        return likeliest(self.runner.forward(batch).logits)

    def pages_of(self, number: int) -> range:
        return range(1 + number * self._pages, 1 + (number + 1) * self._pages)

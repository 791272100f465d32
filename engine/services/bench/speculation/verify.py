"""Cost of verification by itself: a forward of several rows for each answer, compared with one row for each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.loading.model import LoadedModel
from engine.services.bench.measure import median_ratio, timed
from engine.services.bench.sequences import Sequences
from engine.services.bench.speculation.figures import VerifyRow

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

"""What verification costs by itself: a forward of several rows for each answer, compared with one row for each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.batch import SequenceRows
from engine.bench.measure import median_ratio, timed
from engine.bench.speculation.figures import VerifyRow
from engine.cache.pool import PAGE_SIZE
from engine.loading.model import LoadedModel
from engine.loading.parts import new_runner
from engine.runner.runner import Runner

ROWS = (1, 2, 3, 5, 9, 17, 33)
BATCHES = (1, 8)
CONTEXT = 128
"""Tokens that each answer has before these rows."""
_PAGES = -(-(CONTEXT + max(ROWS)) // PAGE_SIZE)


def measure_verify(
    model: LoadedModel, rounds: int, rows: Sequence[int] = ROWS, batches: Sequence[int] = BATCHES
) -> list[VerifyRow]:
    """Medians of ratios within a round, over arenas of their own; nothing where the model has none of its own kind."""
    if model.model is None or model.model.config.max_position < CONTEXT + max(rows):
        return []
    found = []
    for batch in batches:
        runner = new_runner(model.model, batch * _PAGES + 1, model.device)
        _forward(runner, batch, CONTEXT, 0, model.card.vocabulary)
        seconds: dict[int, list[float]] = {count: [] for count in rows}
        for _ in range(5 * rounds + 1):
            for count in rows:
                with timed() as forward:
                    _forward(runner, batch, count, CONTEXT, model.card.vocabulary)
                seconds[count].append(forward.seconds)
        plain = seconds[rows[0]][1:]
        ms = 1000 * statistics.median(plain)
        found += [VerifyRow(batch, count, median_ratio(seconds[count][1:], plain), ms) for count in rows]
    return found


def _forward(runner: Runner, batch: int, count: int, start: int, vocabulary: int) -> None:
    """Compute every row's likeliest token and bring it to the host, which is what verification needs."""
    rows = [
        SequenceRows(
            [(31 * number + 7 * place) % vocabulary for place in range(count)],
            start,
            range(1 + number * _PAGES, 1 + (number + 1) * _PAGES),
            want_logits=count,
        )
        for number in range(batch)
    ]
    runner.forward(rows).logits.argmax(-1).tolist()

"""What steps say about guessing: shares that hold, costs in plain steps, and what the formula makes of them.

Where each guess holds with probability a if the ones before it did, g of them in a chain give
E = (1 - a^(g + 1)) / (1 - a) tokens, and cost g passes of c plain steps each and a check of v plain steps: a speed-up
of E / (g c + v) (Leviathan et al. 2023, section 3.3). Here it is taken over steps of different lengths, none included,
and a tree counts by its depth.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.bench.speculation_figures import Spread
from engine.core.events import Event, StepRecord
from engine.speculation.acceptance import expected_tokens
from engine.speculation.base import Proposer, Work


class Watch:
    """Remembers what proposing cost in each step: the step's record tells it together with everything else.

    :meth:`heard` is called in the engine's thread with every event, and the proposers are asked for their work in it.
    """

    def __init__(self) -> None:
        self._since = Work()
        self._works: dict[float, Work] = {}

    def attach(self, proposers: Iterable[Proposer]) -> None:
        """Listen to these proposers from now on."""
        for proposer in proposers:
            setattr(proposer, "take_work", self._listening(proposer.take_work))  # noqa: B010

    def heard(self, event: Event) -> None:
        if isinstance(event, StepRecord):
            self._works[event.time], self._since = self._since, Work()

    def of(self, step: StepRecord) -> Work:
        """What proposing cost in this step."""
        return self._works.get(step.time, Work())

    def _listening(self, take_work: Callable[[], Work]) -> Callable[[], Work]:
        def taken() -> Work:
            work = take_work()
            since = self._since
            self._since = Work(
                since.seconds + work.seconds, since.passes + work.passes, since.bytes_read + work.bytes_read
            )
            return work

        return taken


class Guessed(NamedTuple):
    """One step of one answer that read no prompt: what it cost, guessing included, and guessing alone; its rows.

    Costs are seconds, or the unit that :func:`decoding` was given. ``tokens`` were written.
    ``depths``: (proposer, depth guessed to, depth that held) of each proposer that guessed.
    """

    cost: float
    draft_cost: float
    passes: int
    rows: int
    tokens: int
    depths: tuple[tuple[str, int, int], ...]


def decoding(steps: Sequence[StepRecord], watch: Watch, unit: float = 1.0) -> list[Guessed]:
    """The steps of one answer that read no prompt. Costs in ``unit``: that of a plain step measured beside it.

    Answers read their whole prompts, and what comes before that is the last step of the answer before.
    """
    first = next((place for place, step in enumerate(steps) if step.prefill_rows), 0)
    found = []
    for step in steps[first:]:
        if step.prefill_rows or not step.decode_rows:
            continue
        work = watch.of(step)
        depths = tuple(
            (guess.proposer, len(guess.proposed), sum(guess.accepted)) for guess in step.guesses if guess.proposed
        )
        rows = step.decode_rows + step.verify_rows
        found.append(Guessed(step.duration / unit, work.seconds / unit, work.passes, rows, step.generated, depths))
    return found


class Held(NamedTuple):
    """Guesses by depth: steps that made one at depth i + 1, and that kept it; those whose predecessors all held."""

    proposed: list[int]
    accepted: list[int]
    reached: int

    @property
    def share(self) -> float:
        """Of the guesses that were reached, those that held."""
        return sum(self.accepted) / self.reached if self.reached else 0.0


def held(steps: Sequence[Guessed], proposer: str = "") -> Held:
    """What became of the guesses of one proposer, or of all."""
    proposed: list[int] = []
    accepted: list[int] = []
    reached = 0
    for step in steps:
        for name, depth, kept in step.depths:
            if proposer in ("", name):
                proposed.extend([0] * (depth - len(proposed)))
                accepted.extend([0] * (depth - len(accepted)))
                for place in range(depth):
                    proposed[place] += 1
                    accepted[place] += place < kept
                reached += min(depth, kept + 1)
    return Held(proposed, accepted, reached)


class Costs(NamedTuple):
    """In plain steps: a pass of the proposer, and by its rows what is left of a step when guessing is taken off."""

    draft_pass: float
    verify: Mapping[int, float]


def costs(steps: Sequence[Guessed]) -> Costs:
    """Medians over steps whose costs are in plain ones."""
    passes = [step.draft_cost / step.passes for step in steps if step.passes]
    rest: defaultdict[int, list[float]] = defaultdict(list)
    for step in steps:
        rest[step.rows].append(step.cost - step.draft_cost)
    return Costs(
        statistics.median(passes) if passes else 0.0,
        {rows: statistics.median(found) for rows, found in rest.items()},
    )


def predicted(steps: Sequence[Guessed], known: Costs) -> float | None:
    """The speed-up by the formula, over steps of these depths; None where nobody guessed."""
    if not any(step.depths for step in steps):
        return None
    names = {name for step in steps for name, _, _ in step.depths}
    shares = {name: held(steps, name).share for name in names}
    tokens = cost = 0.0
    for step in steps:
        tokens += max((expected_tokens(shares[name], depth) for name, depth, _ in step.depths), default=1.0)
        cost += step.passes * known.draft_pass + known.verify[step.rows]
    return tokens / cost


def spread(ratios: Sequence[float]) -> Spread:
    """The median and the quarters."""
    if len(ratios) < 2:
        return Spread(ratios[0], ratios[0], ratios[0], 1)
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Spread(middle, low, high, len(ratios))

"""Speculation from the step records: acceptance, costs in plain steps, and the speed-up that the formula predicts.

Where each draft token is accepted with probability a if the ones before it were, g of them in a chain give
E = (1 - a^(g + 1)) / (1 - a) tokens, and cost g passes of c plain steps each and a verification of v plain steps: a
speed-up of E / (g c + v) (Leviathan et al. 2023, section 3.3). Here it is taken over steps of different draft lengths,
0 included, and a tree counts by its depth.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.decoding.speculation.control.stats import expected_tokens
from engine.decoding.telemetry.records import StepRecord


class Drafted(NamedTuple):
    """One step of one answer that read no prompt: its cost with drafting, the cost of drafting alone, and its rows.

    Costs are seconds, or the unit that :func:`decoding` was given. ``tokens`` were written.
    ``depths``: (proposer, depth drafted to, depth accepted) of each proposer that drafted.
    """

    cost: float
    draft_cost: float
    passes: int
    rows: int
    tokens: int
    depths: tuple[tuple[str, int, int], ...]


def own_steps(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """The steps of these answers that read no prompt."""
    return [step for step in steps if not step.rows.prefill and step.rows.decode]


def decoding(steps: Sequence[StepRecord], unit: float = 1.0) -> list[Drafted]:
    """The steps of one answer that read no prompt. Costs in ``unit``, that of a plain step measured alongside."""
    found = []
    for step in own_steps(steps):
        work, rows = step.drafting, step.rows.decode + step.rows.verify
        depths = tuple(
            (draft.proposer, len(draft.proposed), sum(draft.accepted)) for draft in step.drafts if draft.proposed
        )
        found.append(Drafted(step.duration / unit, work.seconds / unit, work.passes, rows, step.generated, depths))
    return found


class Held(NamedTuple):
    """Steps that proposed, and that accepted, a token at depth i + 1; tokens whose predecessors were all accepted."""

    proposed: list[int]
    accepted: list[int]
    reached: int

    @property
    def share(self) -> float:
        """The share of the draft tokens that were reached which was accepted."""
        return sum(self.accepted) / self.reached if self.reached else 0.0


def held(steps: Sequence[Drafted], proposer: str = "") -> Held:
    """Count the draft tokens proposed, accepted and reached, of one proposer or of all."""
    chains = [(depth, kept) for step in steps for name, depth, kept in step.depths if proposer in ("", name)]
    depths = range(max((depth for depth, _ in chains), default=0))
    return Held(
        proposed=[sum(depth > place for depth, _ in chains) for place in depths],
        accepted=[sum(kept > place for _, kept in chains) for place in depths],
        reached=sum(min(depth, kept + 1) for depth, kept in chains),
    )


class Costs(NamedTuple):
    """Costs in plain steps: of a pass of the proposer, and of a step without its drafting, by the step's rows."""

    draft_pass: float
    verify: Mapping[int, float]


def costs(steps: Sequence[Drafted]) -> Costs:
    """Medians over steps whose costs are in plain steps."""
    passes = [step.draft_cost / step.passes for step in steps if step.passes]
    rest: defaultdict[int, list[float]] = defaultdict(list)
    for step in steps:
        rest[step.rows].append(step.cost - step.draft_cost)
    verify = {rows: statistics.median(found) for rows, found in rest.items()}
    return Costs(statistics.median(passes) if passes else 0.0, verify)


def predicted(steps: Sequence[Drafted], known: Costs) -> float | None:
    """The speed-up by the formula, over steps of these depths; None where nothing was drafted."""
    if not any(step.depths for step in steps):
        return None
    names = {name for step in steps for name, _, _ in step.depths}
    shares = {name: held(steps, name).share for name in names}
    tokens = cost = 0.0
    for step in steps:
        tokens += max((expected_tokens(shares[name], depth) for name, depth, _ in step.depths), default=1.0)
        cost += step.passes * known.draft_pass + known.verify[step.rows]
    return tokens / cost

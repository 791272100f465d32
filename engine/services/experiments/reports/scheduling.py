"""Figures that ``kvasir bench --scheduling`` measured."""

from __future__ import annotations

import msgspec

from engine.decoding.simulate.figures import TraceSummary
from engine.services.experiments.reports.tables import show_line, show_table


class PolicyRow(msgspec.Struct, frozen=True):
    """A policy on the trace, by the engine and by the simulator."""

    name: str
    title: str
    live: TraceSummary
    simulated: TraceSummary
    steps: int
    simulated_steps: int


class FloodRow(msgspec.Struct, frozen=True):
    """Chats beside so many batch requests that came before them: seconds to their first tokens."""

    title: str
    flood: int
    first_median: float
    first_p99: float


class SchedulingFigures(msgspec.Struct, frozen=True):
    """``costs``: rows and seconds of steps, with which the trace was simulated."""

    model: str
    requests: int
    batch: int
    costs: list[tuple[float, float]]
    policies: list[PolicyRow]
    floods: list[FloodRow] = []

    def show(self) -> None:
        steps = ", ".join(f"{rows:.0f}: {1e3 * seconds:.1f}" for rows, seconds in self.costs)
        show_line(
            f"{self.model}: {self.requests} requests with heavy-tailed answers, batches of {self.batch}; ms of a step "
            f"by its rows: {steps}. Seconds, live (simulated):"
        )
        rows = [
            f"{row.title} | {_both(row.live.mean, row.simulated.mean)} | {_both(row.live.p99, row.simulated.p99)} | "
            f"{_both(row.live.first_mean, row.simulated.first_mean)} | "
            f"{_both(row.live.first_p99, row.simulated.first_p99)} | "
            f"{row.live.goodput:.0%} ({row.simulated.goodput:.0%}) | {row.live.fairness:.2f}"
            for row in self.policies
        ]
        show_table(
            "scheduling", "policy | mean | p99 | first token, mean | first token, p99 | goodput | fairness", rows
        )
        if self.floods:
            show_table(
                "chats beside batch requests",
                "where | batch requests | first token of a chat, ms: median | 99 % below",
                (
                    f"{row.title} | {row.flood} | {1e3 * row.first_median:.0f} | {1e3 * row.first_p99:.0f}"
                    for row in self.floods
                ),
            )


def _both(live: float, simulated: float) -> str:
    return f"{live:.2f} ({simulated:.2f})"

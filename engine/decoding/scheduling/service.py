"""Service classes: what answers of a kind are held to, and the switches that set it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engine.catalogue.metrics import OTHERS_WAIT
from engine.catalogue.option import Option
from engine.decoding.scheduling.costs import StepCosts
from engine.protocol import Measure, NumberRange, Value, keys
from engine.protocol.access import ServiceName

LEAST_READ = 16
"""Rows of a step for those that are behind the ones whose target it is held to, even where it cannot be met."""


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """Seconds to the first token and between tokens at most, and its weight among the others."""

    name: str
    first_token: float
    between_tokens: float
    weight: float

    def keeps(self, first_token: float, worst: float) -> bool:
        """Return True for an answer with these seconds to its first token and, at the most, between two."""
        return first_token <= self.first_token and worst <= self.between_tokens

    def within(self, held: int, most: int, costs: StepCosts) -> int:
        """The most rows of a step that takes no longer than the time between tokens, ``most`` at most.

        ``held`` rows are given in any case, and a few for others: where the target cannot be met, it is missed by
        little.
        """
        rows = costs.rows(self.between_tokens)
        return most if rows is None else min(most, max(rows, held + LEAST_READ))


INTERACTIVE = ServiceClass("interactive", 1.0, 0.05, 16.0)
STANDARD = ServiceClass("standard", 5.0, 0.2, 4.0)
BATCH = ServiceClass("batch", 60.0, 5.0, 1.0)
CLASSES: Mapping[str, ServiceClass] = {each.name: each for each in (INTERACTIVE, STANDARD, BATCH)}
"""The classes with their usual targets, the most urgent first."""


def least_urgent(*names: ServiceName) -> ServiceName:
    """The least urgent of these classes, "" standing for none in particular."""
    return max(filter(None, names), key=[*CLASSES].index, default="")


TARGET_KEYS = {
    INTERACTIVE.name: (keys.INTERACTIVE_TTFT, keys.INTERACTIVE_ITL),
    STANDARD.name: (keys.STANDARD_TTFT, keys.STANDARD_ITL),
    BATCH.name: (keys.BATCH_TTFT, keys.BATCH_ITL),
}
"""The switches of each class: seconds to the first token, milliseconds between tokens."""
_WHOSE = {
    INTERACTIVE.name: "chats of the window and of the terminal",
    STANDARD.name: "requests by HTTP",
    BATCH.name: "requests that nobody waits for",
}


def classes_of(values: Mapping[str, Value]) -> dict[str, ServiceClass]:
    """The classes with the targets of these switches."""
    return {
        name: replace(each, first_token=float(values[first]), between_tokens=float(values[between]) / 1e3)
        for (name, each), (first, between) in zip(CLASSES.items(), TARGET_KEYS.values(), strict=True)
    }


def _targets() -> Iterator[Option]:
    for each, (first, between) in zip(CLASSES.values(), TARGET_KEYS.values(), strict=True):
        title, whose = each.name.capitalize(), _WHOSE[each.name]
        yield Option(
            key=first,
            title=f"{title} TTFT, s",
            group="Targets of service classes",
            applies="live",
            default=each.first_token,
            range=NumberRange(0.01, 3600.0),
            explains=f"Seconds that {whose} may wait for their first token (TTFT). With the policy “service classes” "
            "the one that is late keeps its memory; the plot of requests tells how many answers were in time.",
            measure=Measure("share of answers in time (goodput)", OTHERS_WAIT),
            helps="Requests of several classes compete.",
            costs="Nothing in the text. What is promised to one class the others wait for.",
            source=("engine/decoding/scheduling/service.py", "engine/decoding/scheduling/policies/classes.py"),
            also=("TTFT", "SLO", "goodput"),
        )
        yield Option(
            key=between,
            title=f"{title} ITL, ms",
            group="Targets of service classes",
            applies="live",
            default=round(1e3 * each.between_tokens),
            range=NumberRange(1, 3_600_000),
            explains=f"Milliseconds that may pass between two tokens of {whose} (inter-token latency): while one is "
            "written, a step reads of other prompts only what keeps to this. Where the answers alone take longer, “Why "
            "this speed?” says with how many it could be kept.",
            measure=Measure(
                "inter-token latency of other answers during a long prefill, and the share of answers in time",
                OTHERS_WAIT,
            ),
            helps="A long prompt arrives while other answers stream.",
            costs="Nothing in the text. The smaller it is, the more slowly long prompts are read.",
            source=("engine/decoding/scheduling/service.py", "engine/decoding/scheduling/costs.py"),
            also=("ITL", "TPOT", "SLO", "goodput"),
        )


TARGETS = tuple(_targets())

"""The parts of the first minutes of a GPU, and which of them a call of so many minutes runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WORTH_HALF = 0.5
"""Share of its minutes for which a part is begun where none fits whole: another call goes on with it."""


class Part(NamedTuple):
    """``rank``: its place where there is no time for all; ``what``: what it measures, for people."""

    number: int
    name: str
    minutes: float
    rank: int
    what: str

    @property
    def file(self) -> str:
        """Name of its file in the folder of the figures."""
        return f"{self.number:02}-{self.name}.json"


PARTS = (
    Part(0, "start", 1, 0, "versions, clocks; what a first load compiles"),
    Part(1, "memory", 1, 1, "bandwidth, latency, bytes that must be under way"),
    Part(2, "boundary", 1, 3, "between two kernels of a graph; another carve-out of shared memory"),
    Part(3, "one-row", 3, 2, "tiles of the four matrices for one row"),
    Part(4, "rows", 2, 6, "tiles and splits for 8 to 64 rows"),
    Part(5, "attention", 2, 4, "splits by their keys; packed keys; steps of one row"),
    Part(6, "chain", 3, 9, "microseconds a layer of eight layers"),
    Part(7, "early", 1, 8, "early launch against a sleeping producer; replays bit for bit"),
    Part(8, "engine", 5, 5, "1, 8 and 32 answers; kernels of a step; an 8-bit head"),
    Part(9, "prompts", 2, 7, "from how many rows on torch multiplies faster"),
    Part(10, "equal", 2, 10, "answers equal to eager ones; what a long chat compiles"),
    Part(11, "mixture", 2, 11, "layers of mixtures of experts: three kernels for few rows, or sorted; delta nets"),
)
"""Twenty-five minutes. By rank, what every tile follows from comes first, then what is served to one listener."""
BY_NAME = {part.name: part for part in PARTS}


def ordered(parts: Sequence[Part], minutes: float) -> list[Part]:
    """By number where there is time for all of them, else the most important first."""
    enough = sum(part.minutes for part in parts) <= minutes
    return sorted(parts, key=lambda part: part.number if enough else part.rank)


def next_part(waiting: Sequence[Part], minutes: float) -> Part | None:
    """The first of them that fits into the minutes, else the first of which half does; None: neither."""
    for share in (1.0, WORTH_HALF):
        for part in waiting:
            if share * part.minutes <= minutes:
                return part
    return None


def planned(parts: Sequence[Part], minutes: float) -> list[Part]:
    """What a call runs if each part takes all of its minutes."""
    waiting, chosen = ordered(parts, minutes), []
    while (part := next_part(waiting, minutes)) is not None:
        waiting.remove(part)
        chosen.append(part)
        minutes -= min(minutes, part.minutes)
    return chosen

"""Programs that take turns on one machine, round by round, with memory's speed looked at before and after each turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from engine.services.experiments.reports.tables import say
from tests.bench.cases import Case, CasePlan
from tests.bench.turns import ENOUGH, MORE_TRIES, Tries, Turn, alike_pairs

OURS = "Kvasir"

Name = tuple[str, str]
"""A program's title, and its instructions."""
Turns = Mapping[Name, Mapping[Case, Sequence[Tries]]]
"""By program: of every case, the turns of each round."""


class Contestant(Protocol):
    """A program built for, or held to, the set ``instructions``; see `binaries.Peer`.

    Kvasir's title is :data:`OURS`.
    """

    title: str
    instructions: str

    @property
    def peak(self) -> int:
        """The most anonymous memory that it has held so far, bytes."""

    def run(self, cases: Sequence[Case], model: Path, threads: int, steps: int) -> list[float]:
        """Seconds of a step of each case, all of one kind. Raises RuntimeError or OSError where it fails."""


class Interleaving:
    """Entrants that run ``plan`` in turn, those of the same instructions one after the other.

    ``memory`` measures how fast memory is read just now, bytes a second. An entrant that fails is not asked again for
    cases of that kind, and named in ``absent``.
    """

    def __init__(
        self,
        entrants: Sequence[Contestant],
        model: Path,
        plan: CasePlan,
        threads: int,
        memory: Callable[[], float],
        absent: list[str],
    ) -> None:
        self.turns: dict[Name, dict[Case, list[list[Turn]]]] = {}
        self._entrants, self._model, self._plan, self._threads = entrants, model, plan, threads
        self._memory, self._absent = memory, absent
        self._failed: set[tuple[Name, str]] = set()
        self._latest: dict[Name, int] = {}
        """The number of each program's latest turn, counted over all of them."""

    def run(self, rounds: int) -> Turns:
        """Run all cases in every round."""
        say(
            "memory is read before and after every turn; turns of one stream are repeated, up to "
            f"{MORE_TRIES} in a round, until it was as fast for Kvasir as for the others, or {ENOUGH} rounds were alike"
        )
        for round in range(rounds):
            for cases in self._plan.turns():
                what = str(cases[0]) if cases[0].of_memory else cases[0].kind
                say(f"round {round + 1} of {rounds}, {what}")
                for _, side in groupby(self._entrants, key=lambda one: one.instructions):
                    rivals = list(side)
                    for one in rivals:
                        self._turn(one, cases, again=False)
                    if cases[0].of_memory:
                        self._repeat(rivals, cases[0])
        return self.turns

    def _turn(self, one: Contestant, cases: Sequence[Case], again: bool) -> None:
        name, kind = _name(one), cases[0].kind
        if (name, kind) in self._failed:
            return
        say(f"  {' '.join(name)}{', again' if again else ''}")
        before = self._memory()
        try:
            times = one.run(cases, self._model, self._threads, self._plan.steps)
        except (RuntimeError, OSError) as failure:
            self._failed.add((name, kind))
            self._absent.append(f"{' '.join(name)}, {kind}: {failure}")
            say(f"  left out: {self._absent[-1]}")
            return
        after = self._memory()
        for case, seconds in zip(cases, times, strict=True):
            rounds = self.turns.setdefault(name, {}).setdefault(case, [])
            if not again:
                rounds.append([])
            rounds[-1].append(Turn(seconds, before, after))
        self._latest[name] = max(self._latest.values(), default=0) + 1

    def _repeat(self, rivals: Sequence[Contestant], case: Case) -> None:
        """Let those whose turn was the longest ago have another one, while memory was not alike in this round."""
        ours = next((one for one in rivals if one.title == OURS), None)
        for _ in range(MORE_TRIES):
            apart = [] if ours is None else [one for one in rivals if one is not ours and self._apart(ours, one, case)]
            if ours is None or not apart:
                return
            self._turn(min((ours, *apart), key=lambda one: self._latest[_name(one)]), [case], again=True)

    def _apart(self, ours: Contestant, other: Contestant, case: Case) -> bool:
        """Whether the two have met no memory alike in this round, and too few rounds before it were alike."""
        if any((_name(one), case.kind) in self._failed for one in (ours, other)):
            return False
        own, theirs = self.turns[_name(ours)][case], self.turns[_name(other)][case]
        return len(alike_pairs(own, theirs)) < ENOUGH and not alike_pairs(own[-1:], theirs[-1:])


def _name(one: Contestant) -> Name:
    return one.title, one.instructions

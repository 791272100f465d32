"""Sequences that wait, in lanes: of thousands a step looks at the oldest of each alone."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from engine.decoding.scheduling.policy import MOST_LOOKED_AT, S


class WaitingQueue(Generic[S]):
    """Lanes by number, each in order of arrival. ``lane`` says where a sequence belongs."""

    def __init__(self, lane: Callable[[S], int]) -> None:
        self._lane = lane
        self._lanes: dict[int, list[S]] = {}
        self._filed: dict[int, int] = {}
        """The lane of each, by its arrival."""

    def __len__(self) -> int:
        return len(self._filed)

    def __iter__(self) -> Iterator[S]:
        for lane in self._lanes.values():
            yield from lane

    def __contains__(self, sequence: S) -> bool:
        return sequence.arrival in self._filed

    def append(self, sequence: S) -> None:
        lane = self._filed[sequence.arrival] = self._lane(sequence)
        insort(self._lanes.setdefault(lane, []), sequence, key=lambda other: other.arrival)

    def remove(self, sequence: S) -> None:
        lane = self._lanes[self._filed.pop(sequence.arrival)]
        lane.remove(sequence)

    def heads(self) -> list[S]:
        """The oldest of each lane."""
        return [sequence for lane in self._lanes.values() for sequence in lane[:MOST_LOOKED_AT]]

    def refile(self, sequences: Iterable[S]) -> None:
        """Move those that belong to another lane by now."""
        for sequence in sequences:
            if self._filed[sequence.arrival] != self._lane(sequence):
                self.remove(sequence)
                self.append(sequence)

"""Turns of programs on a machine whose memory changes its speed, and which of them may be compared.

A virtual machine's host moves its cores: for some seconds they share a core complex, for others they are on two, and
memory is up to half as fast again. What waits for memory is compared where both sides met the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch

from engine.loading.memory.bandwidth import filled_buffer, in_a_thread, read_speed

ALIKE = 1.1
"""Two speeds of memory, one over the other, that count as the same at most."""
ENOUGH = 3
"""Rounds alike from which on the others are left out; all of them where there are fewer."""
MORE_TRIES = 4
"""Turns more, of all programs together, that a round of one case takes to meet memory alike."""
_LOOK_SECONDS = 0.04
_LOOK_BYTES = 512 << 20
"""Of 192 MB, two caches of 32 MB, of which a virtual machine may tell only one, keep enough to be seen."""


class MemorySpeed:
    """A measurement of how fast the processor reads memory just now, with torch's present number of threads."""

    def __init__(self, size: int = _LOOK_BYTES) -> None:
        """Fills its buffer of ``size`` bytes, which it keeps."""
        self._data = filled_buffer(torch.device("cpu"), size)

    def __call__(self) -> float:
        """Bytes a second, within some 60 ms."""
        return in_a_thread(lambda: read_speed(self._data.device, self._data, _LOOK_SECONDS))


class Turn(msgspec.Struct, frozen=True):
    """``seconds`` of a step, and how fast memory was read just ``before`` and ``after`` the turn, bytes a second."""

    seconds: float
    before: float
    after: float

    @property
    def memory(self) -> float:
        """The speed of memory that it is taken to have met, bytes a second."""
        return (self.before + self.after) / 2

    @property
    def steady(self) -> bool:
        """Whether memory was as fast after it as before."""
        return alike(self.before, self.after)


Tries = Sequence[Turn]
"""The turns of one program on one case within one round: the first, and those that were repeated."""
Pair = tuple[Turn, Turn]
"""Kvasir's turn and another program's."""


class Pairing(NamedTuple):
    """The turns that are compared, in the order of their rounds, and whether memory was ``alike`` in all of them."""

    pairs: list[Pair]
    alike: bool


def alike(one: float, other: float) -> bool:
    return _apart(one, other) <= ALIKE


def _apart(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def closest(ours: Tries, theirs: Tries) -> Pair | None:
    """The two steady turns of a round whose speeds of memory are closest; None where a side has no steady one.

    The seconds have no say in it.
    """
    pairs = ((own, other) for own in ours if own.steady for other in theirs if other.steady)
    return min(pairs, key=lambda pair: _apart(pair[0].memory, pair[1].memory), default=None)


def steady_pairs(ours: Sequence[Tries], theirs: Sequence[Tries]) -> list[Pair]:
    """The closest turns of each round that both finished and that has such."""
    found = (closest(*round) for round in zip(ours, theirs, strict=False))
    return [pair for pair in found if pair is not None]


def alike_pairs(ours: Sequence[Tries], theirs: Sequence[Tries]) -> list[Pair]:
    """Those of :func:`steady_pairs` whose two turns met memory alike."""
    return [(own, other) for own, other in steady_pairs(ours, theirs) if alike(own.memory, other.memory)]


def pairing(ours: Sequence[Tries], theirs: Sequence[Tries]) -> Pairing:
    """The rounds that are alike where they are enough, and else the first turns of all rounds that both finished."""
    rounds = list(zip(ours, theirs, strict=False))
    found = alike_pairs(ours, theirs)
    if len(found) >= min(ENOUGH, len(rounds)):
        return Pairing(found, True)
    return Pairing([(own[0], other[0]) for own, other in rounds], False)

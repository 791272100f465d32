"""Figures of a trace that was served, live or simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from engine.decoding.scheduling.service import CLASSES
from engine.decoding.simulate.simulator import Done


class TraceSummary(msgspec.Struct, frozen=True):
    """Times in seconds from arrival to the first token and to the end, over all requests.

    ``goodput`` is the share of requests whose first token and slowest token kept to the targets of their class.
    ``fairness`` is Jain's index of the speeds, tokens a second from arrival to end: 1 where all are alike
    (Jain, Chiu & Hawe 1984). ``starved`` is the longest that anybody waited for a first token.
    """

    requests: int
    first_mean: float
    first_median: float
    first_p99: float
    mean: float
    median: float
    p99: float
    goodput: float
    fairness: float
    starved: float
    preemptions: int


def summary(done: Iterable[Done]) -> TraceSummary:
    """The figures of requests that ended, of which there is at least one."""
    ended = list(done)
    firsts, wholes = sorted(each.first_token for each in ended), sorted(each.completion for each in ended)
    speeds = [each.spec.answer / each.completion for each in ended]
    return TraceSummary(
        requests=len(ended),
        first_mean=sum(firsts) / len(ended),
        first_median=at_share(firsts, 0.5),
        first_p99=at_share(firsts, 0.99),
        mean=sum(wholes) / len(ended),
        median=at_share(wholes, 0.5),
        p99=at_share(wholes, 0.99),
        goodput=sum(map(_kept, ended)) / len(ended),
        fairness=sum(speeds) ** 2 / (len(speeds) * sum(speed * speed for speed in speeds)),
        starved=firsts[-1],
        preemptions=sum(each.preemptions for each in ended),
    )


def at_share(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _kept(done: Done) -> bool:
    return CLASSES[done.spec.service].keeps(done.first_token, done.worst)

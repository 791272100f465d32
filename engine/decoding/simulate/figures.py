"""Figures of a trace that was served, live or simulated."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from engine.decoding.scheduling.service import CLASSES
from engine.decoding.simulate.simulator import Done


class TraceSummary(msgspec.Struct, frozen=True):
    """Times in seconds from arrival to the first token and to the end, over all requests.

    ``goodput`` is the share of requests whose first token and slowest token kept to the targets of their class.
    ``fairness`` is Jain's index of the speeds, tokens a second from arrival to end: 1 where all are alike
    (Jain, Chiu & Hawe 1984). ``starved`` is the longest that anybody waited for a first token.
    ``services`` has ``first_p99`` of each service class.
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
    services: dict[str, float]


def summary(done: Iterable[Done]) -> TraceSummary:
    """The figures of requests that ended, of which there is at least one and may be millions."""
    services: dict[str, array[float]] = {}
    wholes, speeds = array("d"), array("d")
    kept = preemptions = 0
    for each in done:
        services.setdefault(each.spec.service, array("d")).append(each.first_token)
        wholes.append(each.completion)
        speeds.append(each.spec.answer / each.completion)
        kept += _kept(each)
        preemptions += each.preemptions
    firsts = {name: np.sort(times) for name, times in services.items()}
    count, first, whole = len(wholes), np.sort(np.concatenate([*firsts.values()])), np.sort(wholes)
    return TraceSummary(
        requests=count,
        first_mean=float(first.mean()),
        first_median=at_share(first, 0.5),
        first_p99=at_share(first, 0.99),
        mean=float(whole.mean()),
        median=at_share(whole, 0.5),
        p99=at_share(whole, 0.99),
        goodput=kept / count,
        fairness=float(np.sum(speeds) ** 2 / (count * np.dot(speeds, speeds))),
        starved=float(first[-1]),
        preemptions=preemptions,
        services={name: at_share(times, 0.99) for name, times in firsts.items()},
    )


def at_share(ordered: Sequence[float] | np.ndarray, share: float) -> float:
    """The smallest value that this share does not exceed."""
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def _kept(done: Done) -> bool:
    return CLASSES[done.spec.service].keeps(done.first_token, done.worst)

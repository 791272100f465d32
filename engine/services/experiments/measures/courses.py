"""What each request of a run went through, by the phases that the engine tells in the records of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import structs

from engine.decoding.telemetry.records import StepRecord
from engine.protocol import Phase
from engine.protocol.lab import Doing, Lane, Lanes, Picture, Span

_DOING: dict[Phase, Doing] = {
    "waiting": "waiting",
    "prefill": "reading",
    "decode": "writing",
    "paused": "paused",
    "preempted": "preempted",
    "swapped": "swapped",
}


class Course(NamedTuple):
    """``entered``: seconds of the engine's clock and the phase that began then, from arrival to end. ``steps``: those
    that were made meanwhile, for whomever."""

    entered: list[tuple[float, Phase]]
    steps: Sequence[StepRecord]


def courses(steps: Sequence[StepRecord]) -> list[Course]:
    """All requests that arrived and ended in these steps, in the order of their arrival."""
    entered: dict[str, list[tuple[float, Phase]]] = {}
    arrived: dict[str, int] = {}
    ended: dict[str, int] = {}
    for place, step in enumerate(steps):
        for change in step.phases:
            if change.phase == "waiting":
                entered[change.id], arrived[change.id] = [], place
            if change.id in entered:
                entered[change.id].append((change.at, change.phase))
                ended[change.id] = place
    return [Course(entered[id], steps[arrived[id] : ended[id] + 1]) for id in entered]


def lanes(found: Sequence[Course], names: Sequence[str]) -> Lanes:
    """A lane for each request, in seconds from the first arrival."""
    began = min(course.entered[0][0] for course in found)
    drawn = [
        Lane(
            name=name,
            spans=[
                Span(start=start - began, end=end - began, doing=_DOING[phase])
                for (start, phase), (end, _) in pairwise(course.entered)
                if end > start
            ],
        )
        for name, course in zip(names, found, strict=True)
    ]
    return Lanes(lanes=drawn, seconds=max(course.entered[-1][0] for course in found) - began)


def on_one_axis(pictures: Sequence[Lanes]) -> list[Picture]:
    """All with the axis of the longest."""
    longest = max(picture.seconds for picture in pictures)
    return [structs.replace(picture, seconds=longest) for picture in pictures]

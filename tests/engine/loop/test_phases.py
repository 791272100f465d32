"""The phases of answers as the engine tells them: in order, each once, to the end."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest

from engine.decoding.telemetry.records import EndedAnswer
from engine.protocol import Cancel, Sampling, Set, keys
from tests.engine.loop.toy_engine import ToyEngine, toy_model

PROMPT = [3, 5, 7, 11] * 5
ASKED = Sampling(seed=1, max_tokens=6, ignore_eos=True)


def phases(toy: ToyEngine) -> dict[str, list[str]]:
    toy.drain()
    found = defaultdict(list)
    times = [change.at for step in toy.heard.steps for change in step.phases]
    assert times == sorted(times)
    for step in toy.heard.steps:
        for change in step.phases:
            found[change.id].append(change.phase)
    return found


def test_phases_are_told_as_they_change() -> None:
    toy = ToyEngine()
    toy.add("a", PROMPT, ASKED)
    assert phases(toy) == {"a": ["waiting", "prefill", "decode", "ended"]}
    assert [change.generated for step in toy.heard.steps for change in step.phases] == [0, 0, 1, 6]


def test_who_is_behind_the_batch_waits_or_pauses() -> None:
    toy = ToyEngine()
    toy.engine.submit(Set(key=keys.MAX_BATCH, value=1))
    for name in "ab":
        toy.add(name, PROMPT, ASKED)
    assert phases(toy)["b"] == ["waiting", "prefill", "decode", "ended"]
    toy = ToyEngine()
    for name in "ab":
        toy.add(name, PROMPT, ASKED)
    for _ in range(3):
        toy.step()
    toy.engine.submit(Set(key=keys.MAX_BATCH, value=1))
    assert phases(toy)["b"] == ["waiting", "prefill", "decode", "paused", "decode", "ended"]


@pytest.mark.parametrize(("mode", "phase"), [("recompute", "preempted"), ("swap", "swapped")])
def test_who_gives_pages_up_is_told_to(mode: str, phase: str) -> None:
    toy = ToyEngine(toy_model(pages=7))
    for key, value in ((keys.PREEMPTION, mode), (keys.HOST_CACHE, 1.0)):
        toy.engine.submit(Set(key=key, value=value))
    for name in "ab":
        toy.add(name, PROMPT, Sampling(seed=1, max_tokens=50, ignore_eos=True))
    told = phases(toy)["b"]
    assert told[:3] == ["waiting", "prefill", "decode"]
    assert {"preempted", "swapped"} & {*told} == {phase}
    assert told[-1] == "ended"


def test_answers_that_end_are_held_to_the_targets_of_their_class() -> None:
    toy = ToyEngine()
    assert [each.most for each in toy.engine.service_targets()] == [None] * 3
    for key in (keys.STANDARD_TTFT, keys.STANDARD_ITL):
        toy.engine.submit(Set(key=key, value=3600))
    toy.add("a", PROMPT, ASKED)
    toy.drain()
    toy.engine.submit(Set(key=keys.STANDARD_ITL, value=1))
    toy.add("b", PROMPT, ASKED)
    for _ in range(3):
        toy.step()
        time.sleep(0.01)
    toy.drain()
    toy.add("c", PROMPT, ASKED)
    toy.engine.submit(Cancel(id="c"))
    toy.drain()
    ended = [each for step in toy.heard.steps for each in step.ended]
    assert ended == [EndedAnswer("standard", in_time=True), EndedAnswer("standard", in_time=False)]
    assert toy.engine.service_targets()[1].between_tokens == 0.001

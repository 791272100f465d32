"""Steps launched ahead of the last one's tokens, on a simulated device: texts, books and the order of things."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor

from engine.base.errors import DeviceLost
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import by_torch
from engine.protocol import Cancel, Sampling, Set
from tests.engine.loop.toy_engine import ToyEngine, ToyRunner, sequential, toy_model
from tests.kit.examples import examples

PROMPT = [3, 7, 1, 9, 4, 4, 2]


class Drawn(NamedTuple):
    """As `engine.compute.sampling.device.Pending`."""

    tokens: Tensor
    found: list[int | None]
    log: list[str]

    def read(self) -> list[int | None]:
        self.log.append("read")
        return self.found


@dataclass
class SimulatedDevice:
    """Draws as the device does: at once, but what it drew is known to the host only when it is read.

    Of one token in ``misses`` it says that it is not known; ``log`` is the order of launches and reads.
    """

    misses: int = 0
    log: list[str] = field(default_factory=list)
    rows: int = 0

    def draws(self, params: SamplingParams) -> bool:
        return params.plain and params.typical_p >= 1.0

    def launch(self, logits: Tensor, draws: Sequence[Draw]) -> Drawn:
        assert all(self.draws(draw.params) for draw in draws)
        self.log.append("launch")
        self.rows += len(draws)
        found: list[int | None] = list(by_torch(logits, draws))
        if self.misses:
            found = [None if token is not None and token % self.misses == 0 else token for token in found]
        return Drawn(torch.tensor([token or 0 for token in found]), found, self.log)


def toy(device: SimulatedDevice, pages: int = 64, **options: bool | int | float | str) -> ToyEngine:
    made = ToyEngine(toy_model(pages), **options)
    made.stepper.executor.sampler = device
    return made


SAMPLINGS = (
    Sampling(temperature=0.0, ignore_eos=True),
    Sampling(temperature=1.0),
    Sampling(temperature=1.2, top_k=10, top_p=0.95),
    Sampling(temperature=0.9, min_p=0.02, ignore_eos=True),
    Sampling(temperature=0.9, frequency_penalty=0.2),
    Sampling(temperature=0.7, logprobs=2),
)


def test_the_device_is_given_the_next_step_before_the_last_one_is_read() -> None:
    device = SimulatedDevice()
    engine = toy(device)
    sampling = Sampling(seed=1, max_tokens=20, ignore_eos=True)
    engine.add("a", PROMPT, sampling)
    engine.drain()
    assert engine.heard.answers["a", 0].tokens == sequential(PROMPT, sampling)[0]
    # The first token comes with the prompt; every later one is read while the next is being computed.
    assert device.log == ["launch", *["launch", "read"] * 18, "read"]


def test_an_answer_that_ends_wastes_one_row_at_most() -> None:
    device = SimulatedDevice()
    engine = toy(device)
    sampling = Sampling(seed=5, temperature=1.0, max_tokens=200)
    expected, _, reason = sequential(PROMPT, sampling)
    assert reason == "stop"
    engine.add("a", PROMPT, sampling)
    engine.drain()
    assert engine.heard.answers["a", 0].tokens == expected
    assert device.rows == len(expected), "one for each token but the prompt's own, and one that was wasted"


def test_what_ends_by_its_length_wastes_none() -> None:
    device = SimulatedDevice()
    engine = toy(device)
    engine.add("a", PROMPT, Sampling(seed=5, temperature=0.0, max_tokens=9, ignore_eos=True))
    engine.drain()
    assert device.rows == 8


def test_a_new_request_leaves_the_lane_and_comes_back_to_it() -> None:
    device = SimulatedDevice()
    engine = toy(device)
    sampling = Sampling(seed=1, max_tokens=30, ignore_eos=True)
    engine.add("a", PROMPT, sampling)
    for _ in range(8):
        engine.step()
    engine.add("b", PROMPT[2:], sampling)
    launched = len(device.log)
    engine.step()
    assert device.log[launched:] == ["read"], "nothing is launched ahead of a prompt"
    engine.drain()
    for id, prompt in (("a", PROMPT), ("b", PROMPT[2:])):
        assert engine.heard.answers[id, 0].tokens == sequential(prompt, sampling)[0]
    assert device.rows > 40


def test_settings_that_the_device_does_not_draw_by_are_served_step_by_step() -> None:
    for sampling in SAMPLINGS[4:]:
        device = SimulatedDevice()
        engine = toy(device)
        engine.add("a", PROMPT, sampling)
        engine.drain()
        assert not device.log


@pytest.mark.parametrize("method", ["ngram", "draft"])
def test_drafting_is_served_step_by_step(method: str) -> None:
    device = SimulatedDevice()
    engine = toy(device)
    engine.add("a", PROMPT, Sampling(seed=1, max_tokens=30, ignore_eos=True), speculation=method)
    engine.drain()
    assert not device.log


def test_automatic_speculation_is_tried_in_the_midst_of_it() -> None:
    device = SimulatedDevice()
    engine = toy(device)
    engine.add("a", PROMPT, Sampling(seed=1, temperature=0.0, max_tokens=240, ignore_eos=True), speculation="auto")
    engine.drain()
    expected = sequential(PROMPT, Sampling(seed=1, temperature=0.0, max_tokens=240, ignore_eos=True))[0]
    assert engine.heard.answers["a", 0].tokens == expected
    tried = sum(draft.draft_tokens for step in engine.heard.steps for draft in step.drafts)
    assert tried > 0


@pytest.mark.parametrize(("key", "value"), [("async_scheduling", False), ("batch_invariant", True)])
def test_the_switch_is_live(key: str, value: bool) -> None:
    device = SimulatedDevice()
    engine = toy(device)
    sampling = Sampling(seed=1, max_tokens=30, ignore_eos=True)
    engine.add("a", PROMPT, sampling)
    for _ in range(6):
        engine.step()
    engine.engine.submit(Set(key, value))
    engine.step()
    launched = device.rows
    engine.drain()
    assert device.rows == launched
    assert engine.heard.answers["a", 0].tokens == sequential(PROMPT, sampling)[0]


def test_a_lost_gpu_in_the_lane_ends_the_answers_with_a_sentence() -> None:
    runner = ToyRunner(64)
    engine = ToyEngine(toy_model(runner=runner))
    engine.stepper.executor.sampler = SimulatedDevice()
    engine.add("a", PROMPT, Sampling(seed=1, max_tokens=30, ignore_eos=True))
    for _ in range(5):
        engine.step()

    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    runner.before_forward = fail
    with pytest.raises(DeviceLost):
        engine.step()
    finished = engine.heard.answers["a", 0].finished
    assert finished is not None
    assert "start again" in finished.detail


def test_out_of_memory_in_the_lane_ends_a_lone_answer_and_makes_the_newest_wait() -> None:
    runner = ToyRunner(64)
    engine = ToyEngine(toy_model(runner=runner))
    engine.stepper.executor.sampler = SimulatedDevice()
    sampling = Sampling(seed=1, max_tokens=30, ignore_eos=True)
    for id in "ab":
        engine.add(id, PROMPT, sampling)
    for _ in range(5):
        engine.step()
    runner.runs_out_of_memory([True])
    engine.drain()
    for id in "ab":
        assert engine.heard.answers[id, 0].tokens == sequential(PROMPT, sampling)[0]


@pytest.mark.slow
@examples(120, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32))
def test_texts_and_books_are_those_of_ordinary_steps(seed: int) -> None:
    """Ends by length, stop and end of text, cancels, new requests, preemption for want of pages, tokens not known."""
    chance = random.Random(seed)
    device = SimulatedDevice(misses=chance.choice((0, 0, 5)))
    engine = toy(device, pages=chance.choice((7, 12, 64)))
    wanted, cancelled = {}, set()
    for number in range(chance.randint(2, 7)):
        id = str(number)
        start = chance.randint(0, 20)
        prompt = [(start + i * 5) % 22 for i in range(chance.randint(1, 40))]
        sampling = chance.choice(SAMPLINGS)
        stop = tuple(chance.choice(("", "", "ab", "c")) for _ in range(1))
        sampling = Sampling(
            **{name: getattr(sampling, name) for name in sampling.__struct_fields__}
            | {"seed": number, "max_tokens": chance.randint(1, 40), "stop": list(filter(None, stop))}
        )
        wanted[id] = prompt, sampling
        speculation = chance.choice(("off", "off", "off", "ngram", "auto"))
        engine.add(id, prompt, sampling, speculation=speculation)
        for _ in range(chance.randint(0, 25)):
            engine.step()
        if chance.random() < 0.15:
            engine.engine.submit(Cancel(id=id))
            cancelled.add(id)
    engine.drain()
    limit = engine.model.card.context
    for id, (prompt, sampling) in wanted.items():
        answer = engine.heard.answers.get((id, 0))
        expected = sequential(prompt, sampling, limit=limit)[0]
        if answer is None or id in cancelled or answer.reason == "memory":
            assert answer is None or answer.tokens == expected[: len(answer.tokens)]
        else:
            assert answer.tokens == expected

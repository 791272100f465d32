"""What scheduling and the cache's books cost the host in each step, at many sequences over a large prefix tree."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch
from toy_engine import VOCABULARY, ToyEngine, ToyRunner, toy_model

from engine.core.batch import ForwardOutput
from engine.protocol import Sampling

RUNNING = 64
BOUND = 0.3e-3
"""Seconds."""


class Idle(ToyRunner):
    """Computes nothing."""

    def forward(self, rows):  # type: ignore[no-untyped-def]
        return ForwardOutput(torch.zeros(sum(row.want_logits for row in rows), VOCABULARY), {})


def test_books_take_little_of_a_step() -> None:
    toy = ToyEngine(toy_model(pages=6000, limit=4000, runner=Idle(6000)))
    rng = random.Random(1)
    roots = [[rng.randrange(20) for _ in range(160)] for _ in range(8)]
    short, long = (Sampling(temperature=0.0, max_tokens=count, ignore_eos=True) for count in (2, 300))
    for i in range(300):
        more = [rng.randrange(20) for _ in range(80)]
        toy.add(f"old {i}", roots[i % 8][: 16 * rng.randrange(10)] + more, short)
    while toy.engine.step():
        pass
    for i in range(RUNNING):
        toy.add(f"new {i}", roots[i % 8] + [rng.randrange(20) for _ in range(300)], long)
    scheduler = toy.stepper.scheduler
    while len(scheduler.running) < RUNNING or any(one.pending > 1 for one in scheduler.running):
        toy.engine.step()
    assert sum(1 for _ in toy.stepper.cache.tree.nodes()) > 300
    spent = 0.0

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: object) -> object:
            nonlocal spent
            began = time.perf_counter()
            result = call(*args)
            spent += time.perf_counter() - began
            return result

        return inner

    scheduler.plan = timed(scheduler.plan)  # type: ignore[method-assign]
    scheduler.settle = timed(scheduler.settle)  # type: ignore[method-assign]
    toy.stepper._record = timed(toy.stepper._record)  # type: ignore[method-assign]
    least = 1.0
    for _ in range(150):  # the machine may be busy: what the work takes is the least that was seen
        spent = 0.0
        toy.engine.step()
        least = min(least, spent)
    assert len(scheduler.running) == RUNNING
    assert 0 < least < BOUND

"""Policies of scheduling: whoever goes first and gives way, everybody who fits alone finishes, within the budget."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from engine.decoding.scheduling.plan import Limits
from engine.decoding.scheduling.policy import SchedulingPolicy
from engine.decoding.scheduling.service import CLASSES
from tests.contracts.registration import Contract
from tests.engine.decoding.scheduling.simulation import Simulation

SEEDS, MORE_SEEDS = 12, 30


class SchedulingPolicyContract(Contract):
    policy: ClassVar[type[SchedulingPolicy]]

    @pytest.mark.parametrize(
        "seed", [pytest.param(seed, marks=pytest.mark.long if seed >= SEEDS else ()) for seed in range(MORE_SEEDS)]
    )
    def test_random_traces_finish_within_the_budget(self, seed: int) -> None:
        rng = random.Random(seed)
        limits = Limits(
            rng.choice([16, 33, 128]),
            chunked=rng.random() < 0.7,
            whole_context=rng.random() < 0.3,
            reading_budget=rng.choice([0, 200]),
            max_batch=rng.choice([4, 256]),
            targets=rng.random() < 0.5,
        )
        drafts = rng.choice([0, 3, 8])
        pages = rng.choice([12, 30, 200])
        simulation = Simulation(pages, limits, drafts, rng.randint(0, drafts), self.policy)
        for arrival in range(25):
            prompt, answer = rng.randint(1, 120), rng.randint(1, 50)
            cuts = sorted(rng.sample(range(prompt), rng.choice([0, 0, min(4, prompt // 2 * 2)])))
            wholes = list(zip(cuts[::2], cuts[1::2], strict=True))
            simulation.add(arrival, prompt, answer, rng.choice([*CLASSES]), cached=rng.random() < 0.85, wholes=wholes)
            for _ in range(rng.randint(0, 6)):
                simulation.step()
        simulation.drain()
        assert len(simulation.done) + simulation.failed == 25

    def test_the_newest_gives_way_and_nobody_starves(self) -> None:
        simulation = Simulation(11, Limits(64), policy=self.policy)
        jobs = [simulation.add(i, 20, 60) for i in range(4)]
        simulation.drain()
        assert [job.arrival for job in simulation.done] == sorted(job.arrival for job in jobs)
        assert simulation.done[0].standing.preemptions == 0
        assert sum(job.standing.preemptions for job in jobs) > 0

    def test_preemption_and_admission_do_not_alternate(self) -> None:
        simulation = Simulation(12, Limits(64), policy=self.policy)
        for i in range(8):
            simulation.add(i, 30, 40)
        simulation.drain()
        # Each of the eight fits alone; without a watermark the same sequence would come and go at nearly every page.
        assert sum(len(plan.preempted) for plan in simulation.plans) <= 16

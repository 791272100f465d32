"""Texts of a real model are the same whatever the policy, while requests compete for places and pages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.catalogue import records
from engine.decoding.scheduling.policy import SchedulingTechnique
from engine.decoding.scheduling.service import CLASSES
from engine.loop.commands import AddRequest
from engine.protocol import Sampling
from tests.kit.checkpoints import write_small
from tests.kit.hosts import Host

PROMPTS = [[(7 * i + 3 * number) % 26 for i in range(length)] for number, length in enumerate((14, 40, 12, 10))]
SAMPLING = Sampling(temperature=1.0, seed=3, max_tokens=24, ignore_eos=True)
PAGES = 4


@pytest.mark.slow
def test_texts_are_the_same_under_every_policy(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with Host(write_small(tmp_path / "small"), max_batch=3, prefix_cache=False) as host:
        expected = host.plain(PROMPTS, SAMPLING)
        pool, began = host.stepper.cache.pool, set[object]()
        kept = pool.allocate(pool.free_count - PAGES, ("kept", 0))
        for policy in records(SchedulingTechnique):
            host.answers.clear()
            host.set(admission=policy.name)
            for number, prompt in enumerate(PROMPTS):
                service = [*CLASSES][2 - number % 3]
                host.engine.submit(AddRequest(str(number), prompt, SAMPLING, 1, {}, service=service))
                host.engine.step()
            while host.engine.step():
                pool.check()
            assert host.of(["0", "1", "2", "3"]) == expected, policy.name
            ended = [answer.finished for answer in host.answers.values()]
            assert any(each is not None and each.timings.preemptions for each in ended), policy.name
            began.add(tuple(host.answers))
        assert len(began) > 1, "they are served in other orders"
        pool.release(kept, ("kept", 0))

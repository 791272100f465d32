"""Who is admitted, what is read in a step, and who gives way, on simulated time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.pool import pages_for
from engine.decoding.scheduling.plan import SHARE, Limits
from engine.decoding.scheduling.policies.classes import ServiceClasses
from engine.decoding.scheduling.policies.first_come import StaticBatching
from engine.decoding.scheduling.policies.mlfq import SkipJoinMLFQ
from engine.decoding.scheduling.policies.shortest import ShortestRemaining
from engine.decoding.scheduling.policy import MOST_OVERTAKEN, SchedulingPolicy
from tests.contracts.scheduling_policy import SchedulingPolicyContract
from tests.engine.decoding.scheduling.simulation import ROW, STEP, Simulation
from tests.kit.examples import examples


class TestFirstCome(SchedulingPolicyContract):
    policy = SchedulingPolicy


class TestStaticBatching(SchedulingPolicyContract):
    policy = StaticBatching


class TestServiceClasses(SchedulingPolicyContract):
    policy = ServiceClasses


class TestSkipJoinMLFQ(SchedulingPolicyContract):
    policy = SkipJoinMLFQ


class TestShortestRemaining(SchedulingPolicyContract):
    policy = ShortestRemaining


def test_admission_is_first_come_first_served() -> None:
    simulation = Simulation(40, Limits(64))
    for i in (2, 0, 1, 3):
        simulation.add(i, 60, 5)
    simulation.drain()
    admitted = [job.arrival for plan in simulation.plans for job in plan.admitted]
    assert admitted[:4] == [0, 1, 2, 3]


def test_a_prompt_without_a_cached_prefix_is_overtaken_a_few_times_at_most() -> None:
    simulation = Simulation(40, Limits(64))
    jobs = [simulation.add(arrival, 20, 1) for arrival in range(3)]
    for job, overtaken in zip(jobs, (MOST_OVERTAKEN - 1, MOST_OVERTAKEN, 0), strict=True):
        job.standing.overtaken = overtaken
    simulation.scheduler.policy.prefix_first = True
    order = simulation.scheduler.policy.order(jobs, lambda job: 16 * job.arrival)
    assert [job.arrival for job in order] == [1, 2, 0]


def test_a_long_prompt_does_not_stop_running_answers_when_chunked() -> None:
    worst = {}
    for chunked in (True, False):
        simulation = Simulation(400, Limits(64, chunked))
        talkers = [simulation.add(i, 4, 80) for i in range(4)]
        for _ in range(5):
            simulation.step()
        simulation.add(9, 1000, 2)
        simulation.drain()
        worst[chunked] = max(job.worst for job in talkers)
    assert worst[True] <= STEP + 64 * ROW + 1e-9
    assert worst[False] > 1000 * ROW


@pytest.mark.parametrize("others", [[], [7_500], [3_000, 7_500]])
def test_a_short_prompt_is_read_in_the_step_after_it_came_however_long_those_before_it_are(others: list[int]) -> None:
    simulation = Simulation(4_000, Limits(512))
    talker = simulation.add(0, 4, 400)
    simulation.step()
    for number, prompt in enumerate([7_500, *others]):
        simulation.add(1 + number, prompt, 2)
    simulation.step()
    for number in range(10, 16):
        begun = simulation.now
        simulation.step()
        full = simulation.now - begun  # the short one came in the moment in which this step began
        short = simulation.add(number, 10, 20)
        simulation.step()
        assert 0 < short.first - begun <= 1.5 * full
    assert talker.worst <= STEP + 512 * ROW + 1e-9, "those who write keep their pace"
    simulation.drain()
    assert len(simulation.done) == 8 + len(others)


@given(prompts=st.lists(st.integers(1, 400), min_size=1, max_size=12), budget=st.integers(8, 64))
@examples(60)
def test_the_oldest_prompt_always_gets_its_share(prompts: list[int], budget: int) -> None:
    simulation = Simulation(600, Limits(budget))
    for number, prompt in enumerate(prompts):
        simulation.add(number, prompt, 1)
    while simulation.scheduler.running or simulation.scheduler.waiting:
        reading = [job for job in simulation.scheduler.running if job.cache.pending > 1]
        if not (reading or simulation.scheduler.waiting):
            break
        oldest = reading[0] if reading else min(simulation.scheduler.waiting, key=lambda job: job.arrival)
        unread = oldest.cache.pending
        plan = simulation.step()
        rows = {piece.sequence: piece.rows for piece in plan.slices}
        assert rows[oldest] >= min(unread, (budget - len(plan.slices)) // SHARE)


def test_rows_kept_for_a_newcomer_without_room_are_not_lost() -> None:
    simulation = Simulation(32, Limits(64))
    reader = simulation.add(0, 480, 2)
    simulation.step()
    simulation.add(1, 40, 2)
    plan = simulation.step()
    assert {piece.sequence: piece.rows for piece in plan.slices} == {reader: 64}, "there is no page for the other"
    simulation.drain()


def test_prompts_of_like_length_are_read_one_after_the_other() -> None:
    simulation = Simulation(400, Limits(64))
    first, second = (simulation.add(number, 640, 2) for number in range(2))
    simulation.drain()
    assert 0 < first.first < 0.55 * second.first


def test_a_prompt_is_read_in_larger_chunks_while_nothing_decodes() -> None:
    simulation = Simulation(400, Limits(32, reading_budget=128))
    reader = simulation.add(9, 400, 9)
    assert [piece.rows for piece in simulation.step().slices] == [128]
    talker = simulation.add(1, 4, 80)
    assert {piece.sequence.arrival: piece.rows for piece in simulation.step().slices} == {9: 42, 1: 4}
    # From here on something decodes; what the reader leaves in its last step goes to the other.
    simulation.add(10, 400, 9)
    rows = [{piece.sequence.arrival: piece.rows for piece in simulation.step().slices} for _ in range(9)]
    assert rows[:7] == [{9: 31, 1: 1}] * 7
    assert rows[7] == {9: 13, 1: 1, 10: 18}
    assert rows[8] == {9: 1, 1: 1, 10: 30}
    assert reader.first > talker.first > 0


def test_a_picture_is_read_whole_however_little_is_left() -> None:
    simulation = Simulation(400, Limits(16))
    reader = simulation.add(0, 100, 2, wholes=[(10, 60), (60, 70)])
    talker = simulation.add(1, 3, 40)
    other = simulation.add(2, 60, 2, wholes=[(2, 59)])
    found = [{piece.sequence: piece.rows for piece in simulation.step().slices} for _ in range(7)]
    assert found[:3] == [{reader: 5, talker: 3}, {talker: 1, reader: 5, other: 2}, {talker: 1, reader: 50}]
    assert found[3:6] == [{talker: 1, reader: rows} for rows in (15, 15, 10)], "the other's would be too much"
    assert found[6] == {reader: 1, talker: 1, other: 57}


def test_a_picture_that_never_fits_fails() -> None:
    simulation = Simulation(4, Limits(16))
    simulation.add(0, 90, 2, wholes=[(10, 80)])
    simulation.drain()
    assert simulation.failed == 1


def test_decodes_come_first_and_the_chunk_takes_the_rest() -> None:
    simulation = Simulation(400, Limits(32))
    talkers = [simulation.add(i, 4, 80) for i in range(4)]
    simulation.step()
    simulation.step()
    reader = simulation.add(9, 200, 2)
    plan = simulation.step()
    rows = {piece.sequence.arrival: piece.rows for piece in plan.slices}
    assert all(rows[job.arrival] == 1 for job in talkers)
    assert rows[reader.arrival] == 28


def test_drafts_take_only_rows_and_pages_that_are_left() -> None:
    simulation = Simulation(4, Limits(64), draft_tokens=8, accept=8)
    first = simulation.add(0, 14, 30)
    simulation.step()
    plan = simulation.step()
    assert plan.slices[0].drafts == 8
    assert not plan.preempted
    simulation.scheduler.remove(first)
    busy = Simulation(400, Limits(16), draft_tokens=8)
    for i in range(10):
        busy.add(i, 1, 50)
    busy.step()
    assert sum(piece.rows + piece.drafts for piece in busy.step().slices) == 16


def test_unused_drafts_give_their_pages_back() -> None:
    simulation = Simulation(10, Limits(64), draft_tokens=16, accept=0)
    job = simulation.add(0, 15, 100)
    for _ in range(12):
        simulation.step()
        assert len(job.cache.pages) <= pages_for(job.cache.num_computed + 1)


def test_whole_context_reserves_at_admission_and_never_preempts() -> None:
    simulation = Simulation(21, Limits(64, whole_context=True))
    jobs = [simulation.add(i, 20, 100) for i in range(6)]
    simulation.step()
    assert [len(job.cache.pages) for job in jobs if job.cache.pages] == [8, 8]
    simulation.drain()
    assert not any(plan.preempted for plan in simulation.plans)
    on_demand = Simulation(21, Limits(64))
    for i in range(6):
        on_demand.add(i, 20, 100)
    on_demand.step()
    assert len(on_demand.scheduler.running) > 2


def test_a_lone_sequence_that_cannot_grow_fails() -> None:
    simulation = Simulation(4, Limits(64))
    job = simulation.add(0, 20, 100)
    for _ in range(60):
        simulation.step()
    assert simulation.failed == 1
    assert len(job.cache.tokens) == 3 * 16 + 1
    assert simulation.pool.used_count == 0


def test_more_decodes_than_budget_take_turns() -> None:
    simulation = Simulation(400, Limits(64))
    jobs = [simulation.add(i, 1, 40) for i in range(40)]
    simulation.step()
    simulation.step()
    simulation.limits = Limits(16)
    for _ in range(10):
        simulation.step()
    lengths = [len(job.cache.tokens) for job in jobs]
    assert max(lengths) - min(lengths) <= 2


def test_whole_prompts_and_decodes_take_turns_when_reading_never_ends() -> None:
    """Without a KV cache a sequence reads at every step; others still get on."""
    simulation = Simulation(100, Limits(64, chunked=False))
    talker = simulation.add(0, 4, 30)
    simulation.add(1, 40, 30, cached=False)
    for _ in range(40):
        simulation.step()
    assert len(talker.cache.tokens) > 4 + 15

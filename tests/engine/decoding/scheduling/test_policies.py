"""Policies on virtual time: each keeps its promise, none starves anybody, and targets hold where the budget can."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.plan import Limits
from engine.decoding.scheduling.policies.classes import ServiceClasses
from engine.decoding.scheduling.policies.first_come import StaticBatching
from engine.decoding.scheduling.policies.mlfq import LEVELS, STARVED, SkipJoinMLFQ, entry_level, quantum
from engine.decoding.scheduling.policies.shortest import ShortestRemaining
from engine.decoding.scheduling.policy import SchedulingPolicy
from engine.decoding.scheduling.service import BATCH, CLASSES, INTERACTIVE, LEAST_READ
from engine.decoding.simulate.figures import TraceSummary, summary
from engine.decoding.simulate.simulator import Simulator
from engine.decoding.simulate.trace import TraceRequest, TraceSpec, synthetic
from tests.engine.decoding.scheduling.simulation import Simulation
from tests.kit.examples import examples

STEP, ROW = 0.02, 0.001
COSTS = StepCosts((1, STEP + ROW), (256, STEP + 256 * ROW))
POLICIES: Sequence[type[SchedulingPolicy]] = (
    SchedulingPolicy,
    StaticBatching,
    ServiceClasses,
    SkipJoinMLFQ,
    ShortestRemaining,
)


def served(policy: SchedulingPolicy, trace: Sequence[TraceRequest], limits: Limits, pages: int = 4000) -> TraceSummary:
    simulator = Simulator(policy, limits, COSTS, pages)
    found = summary(simulator.run(trace))
    assert simulator.failed == 0
    assert simulator.manager.pool.used_count == 0
    return found


def arrivals() -> st.SearchStrategy[list[TraceRequest]]:
    one = st.builds(
        TraceRequest, st.floats(0, 20), st.integers(1, 300), st.integers(1, 120), st.sampled_from([*CLASSES])
    )
    return st.lists(one, min_size=1, max_size=30).map(lambda found: sorted(found, key=lambda arrival: arrival.at))


@pytest.mark.parametrize("policy", POLICIES)
@given(trace=arrivals(), batch=st.integers(1, 8), pages=st.sampled_from([40, 80, 4000]))
@examples(15)
def test_all_work_is_done_and_pages_come_back(
    policy: type[SchedulingPolicy], trace: list[TraceRequest], batch: int, pages: int
) -> None:
    found = served(policy(), trace, Limits(64, max_batch=batch), pages)
    assert found.requests == len(trace)


def test_who_runs_goes_on_where_an_aged_newcomer_finds_no_room() -> None:
    """Prompts that are half read keep their pages promised, and the place of one is the newcomer's."""
    rng = random.Random(2)
    trace = [TraceRequest(0.0, rng.randint(150, 300), rng.randint(1, 120)) for _ in range(25)]
    assert served(ShortestRemaining(), trace, Limits(64, max_batch=1), 80).requests == 25


@pytest.mark.parametrize("policy", [SchedulingPolicy, ServiceClasses, SkipJoinMLFQ, ShortestRemaining])
def test_the_machine_never_idles_while_there_is_work(policy: type[SchedulingPolicy]) -> None:
    """Conservation of work: whatever the order, as many tokens are written by the end, in steps as full."""
    trace = [each._replace(at=0.0) for each in synthetic(TraceSpec(60, 1.0, lengths="heavy"))]
    simulator = Simulator(policy(), Limits(512, max_batch=4, targets=False), COSTS, 4000)
    ended = list(simulator.run(trace))
    assert simulator.busy == pytest.approx(simulator.now)
    assert len(ended) == 60


def test_short_answers_do_not_wait_for_long_ones_in_feedback_queues() -> None:
    trace = list(synthetic(TraceSpec(1000, 6.0, lengths="heavy")))
    limits = Limits(512, max_batch=8)
    first_come, queues = served(SchedulingPolicy(), trace, limits), served(SkipJoinMLFQ(), trace, limits)
    bound = served(ShortestRemaining(), trace, limits)
    assert queues.mean < 0.4 * first_come.mean
    assert bound.mean < queues.mean


def test_continuous_batching_does_three_times_the_work_of_static_batching() -> None:
    trace = [each._replace(at=0.0) for each in synthetic(TraceSpec(600, 1.0, lengths="heavy"))]
    spans = []
    for policy in (SchedulingPolicy(), StaticBatching()):
        simulator = Simulator(policy, Limits(512, max_batch=32), COSTS, 8000)
        list(simulator.run(trace))
        spans.append(simulator.now)
    assert spans[1] > 3 * spans[0]


def test_an_interactive_request_hardly_notices_a_flood_of_batch_requests() -> None:
    asks = [TraceRequest(10.0 + 2.0 * number, 160, 10, INTERACTIVE.name) for number in range(101)]
    flood = [TraceRequest(0.0, 200, 400, BATCH.name) for _ in range(150)]
    limits = Limits(512, max_batch=64)

    def p99(policy: SchedulingPolicy, trace: list[TraceRequest]) -> float:
        simulator = Simulator(policy, limits, COSTS, 4000)
        ended = [done for done in simulator.run(sorted(trace)) if done.spec.service == INTERACTIVE.name]
        assert len(ended) == len(asks)
        return summary(ended).first_p99

    idle = p99(ServiceClasses(), asks)
    assert p99(ServiceClasses(), asks + flood) < 1.5 * idle
    assert p99(SchedulingPolicy(), asks + flood) > 3 * idle


def test_a_flood_of_interactive_requests_leaves_batch_requests_their_share() -> None:
    flood = [TraceRequest(0.02 * number, 100, 50, INTERACTIVE.name) for number in range(500)]
    patient = [TraceRequest(1.0, 20, 20, BATCH.name)]
    simulator = Simulator(ServiceClasses(), Limits(512, max_batch=8), COSTS, 4000)
    ended = {done.spec.service: done for done in simulator.run(sorted(flood + patient))}
    shares = sum(each.weight for each in CLASSES.values()) / BATCH.weight
    alone = (STEP + 20 * ROW) + 20 * (STEP + ROW)
    assert ended[BATCH.name].completion < shares * alone + BATCH.first_token


def test_who_is_not_served_goes_to_the_first_queue_after_a_while() -> None:
    long = [TraceRequest(0.0, 10, 2000)] * 2
    stream = [TraceRequest(1.0 + 0.01 * number, 1, 1) for number in range(6000)]
    simulator = Simulator(SkipJoinMLFQ(), Limits(64, max_batch=2), COSTS, 4000)
    worst = max(done.worst for done in simulator.run(long + stream) if done.spec.answer == 2000)
    assert STARVED < worst < STARVED + 5.0


def test_a_prompt_joins_the_queue_that_its_reading_takes() -> None:
    assert [entry_level(seconds) for seconds in (0.0, 0.5, 0.6, 1.1, 1e6)] == [0, 0, 1, 2, LEVELS - 1]
    assert quantum(2) == 4 * quantum(0)


@pytest.mark.parametrize("on", [True, False])
def test_a_long_prompt_lifts_no_answer_above_its_target(on: bool) -> None:
    eight = [TraceRequest(0.0, 16, 400, name) for name in [INTERACTIVE.name] * 7 + [BATCH.name]]
    long = TraceRequest(5.0, 4000, 4)
    simulator = Simulator(SchedulingPolicy(), Limits(512, targets=on), COSTS, 4000)
    worst = max(done.worst for done in simulator.run([*eight, long]) if done.spec.answer == 400)
    before = STEP + 8 * ROW
    assert (worst <= max(INTERACTIVE.between_tokens, before + LEAST_READ * ROW) + 1e-9) == on
    assert worst > 0.3 or on


def test_costs_are_learned_from_steps_by_their_rows() -> None:
    costs = StepCosts()
    assert costs.rows(1.0) is None
    costs.learn(1, STEP + ROW)
    assert costs.seconds(100) is None, "steps of one size say nothing of others"
    for rows in (30, 200):
        costs.learn(rows, STEP + rows * ROW)
    for _ in range(2000):  # whatever comes after, what large steps took is known
        costs.learn(1, STEP + ROW)
    assert costs.seconds(100) == pytest.approx(STEP + 100 * ROW)
    assert costs.seconds(400) == pytest.approx(STEP + 400 * ROW)
    assert costs.rows(0.05) == pytest.approx(30, abs=1)
    assert costs.rows(0.01) == 0
    for _ in range(200):
        costs.learn(200, 1.0)  # the machine is busy by now
    assert costs.seconds(200) == pytest.approx(1.0, rel=0.01)


def test_more_rows_that_take_no_longer_set_no_limit() -> None:
    costs = StepCosts((1, 0.02), (64, 0.01))
    assert costs.rows(0.05) is None
    assert costs.seconds(64) == pytest.approx(0.02)


def test_urgent_newcomers_take_the_places_of_all_that_are_behind_them() -> None:
    trace = [TraceRequest(0.0, 4, 300, BATCH.name) for _ in range(2)]
    trace += [TraceRequest(1.0, 4, 20, INTERACTIVE.name) for _ in range(6)]
    simulator = Simulator(ServiceClasses(), Limits(64, max_batch=4), COSTS, 400)
    ended = [done for done in simulator.run(trace) if done.spec.service == INTERACTIVE.name]
    assert sorted(round(done.first_token, 3) for done in ended)[3] < 0.1, "four of them start at once"


def test_targets_take_nothing_from_drafts() -> None:
    """Whether they are worth their time is said by their controller, also where a plain step misses the target."""
    simulation = Simulation(400, Limits(64), draft_tokens=30)
    simulation.scheduler.costs = StepCosts((1, 0.5), (64, 1.5))
    simulation.add(0, 20, 200)
    simulation.step()
    assert simulation.step().slices[0].drafts == 30


def test_a_batch_has_no_more_sequences_than_it_may() -> None:
    trace = [TraceRequest(0.0, 10, 30) for _ in range(20)]
    assert (
        served(SchedulingPolicy(), trace, Limits(64, max_batch=20)).mean
        < 1.7
        < served(SchedulingPolicy(), trace, Limits(64, max_batch=2)).mean
    )

"""Policies on virtual time: each keeps its promise, none starves anybody, and targets hold where the budget can."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.plan import Limits
from engine.decoding.scheduling.policies.classes import ServiceClasses
from engine.decoding.scheduling.policies.first_come import StaticBatching
from engine.decoding.scheduling.policies.mlfq import LEVELS, STARVED, SkipJoinMLFQ, entry_level, quantum
from engine.decoding.scheduling.policies.shortest import AGED, ShortestRemaining
from engine.decoding.scheduling.policy import SchedulingPolicy
from engine.decoding.scheduling.service import BATCH, CLASSES, INTERACTIVE, LEAST_READ, STANDARD, ServiceClass
from engine.decoding.simulate.figures import TraceSummary, summary
from engine.decoding.simulate.simulator import Simulator
from engine.decoding.simulate.trace import TraceRequest, TraceSpec, synthetic
from tests.engine.decoding.scheduling.simulation import Simulation
from tests.kit.examples import examples

STEP, ROW = 0.02, 0.001
COSTS = StepCosts((1, STEP + ROW), (256, STEP + 256 * ROW))
SLOW = 0.1
"""Seconds of a slow step."""
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


@pytest.mark.parametrize("policy", POLICIES)
@given(trace=arrivals(), batch=st.integers(1, 8), pages=st.sampled_from([40, 80, 400]), jumps=st.booleans())
@examples(10)
def test_nobody_is_left_out_or_passed_over_however_the_clock_jumps(
    policy: type[SchedulingPolicy], trace: list[TraceRequest], batch: int, pages: int, jumps: bool
) -> None:
    """Each step is held to conservation of work and to the policy's tiers, in batches of changing sizes."""
    simulation = Simulation(pages, Limits(64, max_batch=batch, targets=False), policy=policy)
    rng, scheduler = random.Random(batch), simulation.scheduler
    for arrival, (at, *asked) in enumerate(trace):
        while simulation.now < at and (scheduler.running or scheduler.waiting):
            simulation.step()
        simulation.add(arrival, *asked)
        simulation.now += rng.choice([0.0, 0.0, -3600.0, 3600.0]) if jumps else 0.0
        simulation.limits = simulation.limits._replace(max_batch=rng.randint(1, batch))
    simulation.drain()


@pytest.mark.parametrize("policy", POLICIES)
def test_whoever_is_cancelled_leaves_nothing_whatever_it_did(policy: type[SchedulingPolicy]) -> None:
    simulation, rng, states = Simulation(16, Limits(48), policy=policy), random.Random(0), set[str]()
    scheduler = simulation.scheduler
    for arrival in range(1500):
        if len(states) == 5:
            break
        if len(scheduler.waiting) < 12:
            simulation.add(arrival, rng.randint(1, 100), rng.randint(1, 60), rng.choice([*CLASSES]))
        simulation.limits = simulation.limits._replace(max_batch=rng.randint(1, 4))
        served = {piece.sequence for piece in simulation.step().slices}
        there = [*scheduler.running, *scheduler.waiting]
        if arrival % 4 or not there:
            continue
        request = rng.choice([each for each in scheduler.waiting if each.standing.preemptions] or there)
        if request in scheduler.running:
            states.add(("prefill", "decode")[request.cache.pending == 1] if request in served else "paused")
        else:
            states.add("preempted" if request.standing.preemptions else "waiting")
        scheduler.remove(request)
        assert not request.cache.pages
        assert request not in [*scheduler.waiting, *scheduler.running]
    assert states == {"waiting", "prefill", "decode", "paused", "preempted"}
    simulation.drain()


def test_a_step_looks_at_as_many_of_ten_thousand_that_wait_as_of_two_thousand() -> None:
    simulation, calls = Simulation(4000, Limits(64, max_batch=8)), []
    for arrival in range(10_000):
        simulation.add(arrival, 20 + arrival % 50, 20, [*CLASSES][arrival % 3])
        if arrival + 1 in (2_000, 10_000):
            for policy in POLICIES:
                simulation.scheduler.follow(policy())
                calls.append(calls_of(lambda: simulation.scheduler.plan(simulation.limits, {}, 1.0)))
    assert all(many < 1.2 * few for few, many in zip(calls[:5], calls[5:], strict=True)), calls


def calls_of(work: Callable[[], object]) -> int:
    """How many functions were called."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
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


def test_the_first_chat_finds_no_step_that_takes_most_of_its_time() -> None:
    costs = StepCosts((1, 0.02), (512, 1.0))
    flood = [TraceRequest(0.0, 2000, 4, BATCH.name) for _ in range(10)]
    chat = TraceRequest(3.1, 16, 4, INTERACTIVE.name)

    def first_token(policy: SchedulingPolicy, trace: list[TraceRequest]) -> float:
        ended = Simulator(policy, Limits(512, max_batch=8), costs, 4000).run(trace)
        return next(done.first_token for done in ended if done.spec is chat)

    alone = first_token(ServiceClasses(), [chat])
    assert first_token(ServiceClasses(), [*flood, chat]) < alone + INTERACTIVE.between_tokens + 0.03
    assert first_token(SchedulingPolicy(), [*flood, chat]) > 1.0


@pytest.mark.parametrize(
    ("policy", "bound"),
    [
        (SchedulingPolicy, 1.0),
        (StaticBatching, 1.0),
        # It reads its ten rows first, and then the others have theirs, of which each step has two.
        (ServiceClasses, SLOW * 10 * sum(each.weight for each in CLASSES.values()) / BATCH.weight / 2),
        (SkipJoinMLFQ, STARVED + 1.0),
        (ShortestRemaining, AGED + 1.0),
    ],
)
def test_a_flood_leaves_nobody_out_for_longer_than_the_policy_promises(
    policy: type[SchedulingPolicy], bound: float
) -> None:
    flood = [TraceRequest(1.0 + SLOW * number / 2, 1, 1, INTERACTIVE.name) for number in range(600)]
    long = TraceRequest(1.5, 10, 1000, BATCH.name)
    simulator = Simulator(policy(), Limits(64, max_batch=2), StepCosts((1, SLOW), (256, 2 * SLOW)), 4000)
    (ended,) = [done for done in simulator.run(sorted([*flood, long])) if done.spec == long]
    assert max(ended.first_token, ended.worst) < bound


@pytest.mark.parametrize("classes", [[INTERACTIVE], [INTERACTIVE, STANDARD], [INTERACTIVE, STANDARD, BATCH]])
def test_who_changes_its_class_at_every_request_keeps_nobody_from_its_share(classes: list[ServiceClass]) -> None:
    simulation = Simulation(400, Limits(64, max_batch=2), policy=ServiceClasses)
    answer = simulation.add(0, 10, 100, BATCH.name)
    for number in range(1, 401):
        simulation.add(number, 20, 1, classes[number % len(classes)].name)
        simulation.step()
    assert answer.left == 0
    assert answer.worst < 0.3, "its ten rows at first are paid back"


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


def test_an_urgent_prompt_is_read_in_a_step_of_its_own() -> None:
    simulation = Simulation(400, Limits(64, targets=False), policy=ServiceClasses)
    for number, prompt in enumerate((4, 1000)):
        simulation.add(number, prompt, 300, BATCH.name)
        simulation.step()
    urgent = simulation.add(2, 30, 20, INTERACTIVE.name)
    assert [(piece.sequence, piece.rows) for piece in simulation.step().slices] == [(urgent, 30)]


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

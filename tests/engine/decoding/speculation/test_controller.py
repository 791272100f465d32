"""The controller in simulated time: it finds what pays, lets go of what does not, and wastes little in finding out."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest

from engine.decoding.speculation.base import MAX_DEPTH, NO_DRAFT
from engine.decoding.speculation.control.candidate import LONGEST_WAIT, TRIALS
from engine.decoding.speculation.control.controller import FORCED, Controller, Round
from engine.decoding.speculation.verify.verifier import Verdict
from tests.engine.decoding.speculation.simulated_time import FakeProposer, FakeRepeats, FakeRequest, Simulation


def cheap(rows: int) -> float:
    return 1.0 + 0.02 * (rows - 1)


def dear(rows: int) -> float:
    return 1.0 + 0.3 * (rows - 1)


@pytest.mark.content
@pytest.mark.always
@pytest.mark.parametrize("best", ["draft", "exit", "mtp"])
def test_the_best_of_three_by_known_costs_is_chosen(best: str) -> None:
    """Of equal acceptance the cheapest wins, whichever it is."""
    passes = {name: 0.04 if name == best else 0.5 for name in ("draft", "exit", "mtp")}
    simulation = Simulation([FakeProposer(name, 0.75, seconds) for name, seconds in passes.items()], cheap)
    simulation.run(800)
    assert simulation.asked(best, 500) > 0.9
    assert simulation.plain_seconds / simulation.seconds > 2.0


def test_a_tree_beats_a_chain_where_rows_are_free() -> None:
    proposers = [FakeProposer("draft", 0.5, 0.02), FakeProposer("medusa", 0.5, 0.02, branches=True, one_pass=True)]
    simulation = Simulation(proposers, lambda rows: 1.0).run(800)
    assert simulation.asked("medusa", 400) > 0.9
    record = simulation.latest("medusa")
    assert record.tree_nodes > record.draft_length
    assert "drafts" in record.reasoning


def test_rows_that_cost_make_trees_small() -> None:
    simulation = Simulation(
        [FakeProposer("medusa", 0.7, 0.02, branches=True, one_pass=True)], lambda rows: 0.5 + rows / 2
    )
    simulation.run(800)
    assert 0 < simulation.latest("medusa").tree_nodes <= 4


def test_free_rows_at_batch_1_dear_ones_at_64() -> None:
    def roofline(rows: int) -> float:
        return max(1.0, rows / 64)

    for batch, share, steps in ((1, 0.9, 600), (64, 0.0, 2000)):
        simulation = Simulation([FakeProposer("draft", 0.7, 0.05)], roofline, batch=batch, speculation="draft")
        simulation.run(steps)
        assert simulation.asked("draft", 200) >= share
        if batch == 64:
            assert simulation.asked("draft", 500) < 0.02
            assert "next try in" in simulation.latest("draft").off_reason
            assert simulation.seconds < 1.03 * simulation.plain_seconds


def test_it_follows_a_change_of_text() -> None:
    proposer = FakeProposer("draft", 0.9, 0.1)
    simulation = Simulation([proposer], lambda rows: 1.0 + 0.1 * (rows - 1), speculation="draft").run(300)
    assert simulation.asked("draft", 200) > 0.9
    long = simulation.latest("draft").draft_length
    proposer.hold = 0.02
    simulation.run(300)
    assert simulation.asked("draft", 200) < 0.1
    proposer.hold = 0.9
    simulation.run(700)
    assert simulation.asked("draft", 100) > 0.9
    assert simulation.latest("draft").draft_length >= long - 2
    proposer.hold = 0.6
    simulation.run(300)
    assert 0 < simulation.latest("draft").draft_length < long


@pytest.mark.content
@pytest.mark.parametrize("seed", range(5))
def test_delayed_steps_do_not_switch_off_what_pays(seed: int) -> None:
    """One step in ten takes three times as long; drafting really gains about a half."""
    arguments: dict[str, object] = {"speculation": "draft", "seed": seed}
    gain = Simulation([FakeProposer("draft", 0.75, 0.2)], cheap, **arguments).run(2000)  # type: ignore[arg-type]
    assert 1.35 < gain.plain_seconds / gain.seconds < 1.65
    busy = Simulation([FakeProposer("draft", 0.75, 0.2)], cheap, hiccups=0.1, **arguments).run(2000)  # type: ignore[arg-type]
    assert busy.asked("draft", 2000) > 0.93


@pytest.mark.slow
@pytest.mark.content
@pytest.mark.parametrize("period", [20, 60, 200])
def test_a_machine_whose_speed_drifts_is_judged_as_a_steady_one(period: int) -> None:
    """Its clock, or what other programs leave of it: up to three times as slow, for so many steps each."""

    def asked(hold: float, seed: int) -> float:
        rng = random.Random(seed)
        speeds = [3.0 ** rng.random() for _ in range(1000 // period)]
        proposer = FakeProposer("draft", hold, 0.13)
        simulation = Simulation([proposer], cheap, speculation="draft", slow=lambda step: speeds[step // period])
        for _ in range(8):
            simulation.run(60)
            simulation.renew()
        return simulation.asked("draft", 400)

    assert sum(asked(0.9, seed) for seed in range(6)) > 6 * 0.9
    assert sum(asked(0.6, seed) for seed in range(6)) > 6 * 0.8
    assert sum(asked(0.05, seed) for seed in range(6)) < 6 * 0.25


@pytest.mark.parametrize("spoiled", [range(3), range(3, 12), range(1, 20, 2), range(40, 60)])
def test_an_unlucky_beginning_is_overcome(spoiled: range) -> None:
    """The bug of one spoiled estimate: drafts nearly always hold, but some first steps take three times as long."""
    simulation = Simulation(
        [FakeProposer("draft", 0.99, 0.1)],
        cheap,
        speculation="draft",
        slow=lambda step: 3.0 if step in spoiled else 1.0,
    ).run(1000)
    assert simulation.asked("draft", 600) > 0.9
    assert simulation.plain_seconds / simulation.seconds > 2.5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("target", "hold", "per_pass", "host"),
    [
        (cheap, 0.5, 0.65, 0.0),  # 10 % by costs that can be seen
        (cheap, 0.5, 0.1, 0.6),  # 10 % by costs that only whole steps show
        (dear, 0.1, 1.0, 0.0),  # hopeless
    ],
)
def test_what_loses_is_off_and_costs_little(seed: int, target, hold: float, per_pass: float, host: float) -> None:
    simulation = Simulation([FakeProposer("draft", hold, per_pass)], target, host=host, seed=seed, speculation="draft")
    simulation.run(2000)
    assert simulation.asked("draft", 1500) < 0.2
    record = next(r for records in reversed(simulation.steps) for r in records if not r.draft_length)
    assert record.reasoning == f"off: {record.off_reason}"
    assert "next try in" in record.off_reason
    assert simulation.seconds < 1.03 * simulation.plain_seconds


@pytest.mark.parametrize("seed", range(3))
def test_many_short_answers_for_which_nothing_pays_cost_little(seed: int) -> None:
    proposers = [FakeProposer("draft", 0.3, 0.3), FakeProposer("exit", 0.2, 0.3), FakeRepeats(0.1)]
    simulation = Simulation(proposers, dear, seed=seed)
    for _ in range(30):
        simulation.run(80)
        simulation.renew()
    assert simulation.seconds < 1.03 * simulation.plain_seconds


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize(("hold", "per_pass"), [(0.1, 0.0), (0.2, 0.5), (0.3, 0.2)])
def test_what_a_trial_cost_decides_when_the_next_is_made(hold: float, per_pass: float, others: int) -> None:
    """Nothing gains here: what hardly loses is tried often, what is hopeless rarely."""
    proposers = [FakeProposer(name, hold, per_pass) for name in ("draft", "exit", "skip", "mtp")[: 1 + others]]
    simulation = Simulation(proposers, lambda rows: 1 + 0.3 * (rows - 1)).run(5000)
    asked = [step for step, records in enumerate(simulation.steps) if any(r.draft_length for r in records)]
    begins = [b for a, b in itertools.pairwise(asked) if b - a > 8]
    assert begins[-1] > 5000 - 2 * LONGEST_WAIT, "it goes on trying"
    settled = simulation.seconds / simulation.plain_seconds - 1.0
    assert settled < 1.5 * TRIALS


def test_trials_become_rarer_where_they_cost_more() -> None:
    def trials(per_pass: float) -> int:
        simulation = Simulation([FakeProposer("draft", 0.2, per_pass)], lambda rows: 1 + 0.1 * (rows - 1)).run(4000)
        return sum(any(r.draft_length for r in records) for records in simulation.steps)

    assert trials(0.1) > 2 * trials(0.6)


def test_a_batch_tries_one_proposer_at_a_time_and_drafts_by_one() -> None:
    """A step in which two draft tells of neither what it costs, and takes the passes of both."""
    proposers = [FakeProposer(name, 0.9, 0.2) for name in ("draft", "exit", "mtp")]
    simulation = Simulation(proposers, lambda rows: 1 + 0.02 * (rows - 1), batch=6).run(400)
    for records in simulation.steps:
        assert sum(bool(record.draft_length) for record in records) <= 1
    assert sum(bool(records and records[0].draft_length) for records in simulation.steps) > 350


def test_a_new_text_is_tried_soon_even_if_the_last_one_gave_up() -> None:
    """Free talk, then an edit: the next answer need not wait as long as the last one would have."""
    repeats = FakeRepeats(0.02)
    simulation = Simulation([repeats], lambda rows: 1 + 0.1 * (rows - 1), speculation="ngram").run(3000)
    assert simulation.asked("ngram", 500) < 0.2
    repeats.hold = 0.95
    simulation.renew()
    simulation.run(150)
    assert simulation.asked("ngram", 50) > 0.9


def test_costs_that_only_whole_steps_show_are_seen() -> None:
    """Seconds that depend on whether there are draft tokens, not on how many."""
    simulation = Simulation([FakeProposer("draft", 0.6, 0.0)], lambda rows: 1.0, host=3.0, speculation="draft").run(
        1500
    )
    assert simulation.asked("draft", 1000) < 0.05
    assert simulation.seconds < 1.05 * simulation.plain_seconds


@pytest.mark.slow
@pytest.mark.content
@pytest.mark.parametrize(
    ("batch", "share", "hold", "per_pass"),
    [
        *((1, 0.95, *costs) for costs in [(0.5, 0.05), (0.95, 0.05)]),
        *(pytest.param(1, 0.95, *costs, marks=pytest.mark.long) for costs in [(0.8, 0.1), (0.8, 0.02)]),
        (8, 0.9, 0.5, 0.05),
        *(pytest.param(8, 0.9, *costs, marks=pytest.mark.long) for costs in [(0.8, 0.1), (0.95, 0.05), (0.8, 0.02)]),
    ],
)
def test_the_best_fixed_length_is_hardly_better(batch: int, share: float, hold: float, per_pass: float) -> None:
    """Of eight requests each chooses a length of its own, and all wait for the longest."""

    def speed(**options: object) -> float:
        simulation = Simulation([FakeProposer("draft", hold, per_pass)], cheap, batch, speculation="draft", **options)
        simulation.run(1500)
        return simulation.tokens / simulation.seconds

    assert speed() > share * max(speed(draft_length=length) for length in (1, 2, 4, 6, 8, 12, 16))


def test_what_a_grammar_forces_comes_before_any_proposer_and_teaches_nothing() -> None:
    """And is dropped where the scheduler has no room for it."""
    request: Any = FakeRequest(0, speculation="off")
    request.constraint, request.cached = SimpleNamespace(forced=lambda tokens: list(range(5, 40))), True
    controller = Controller([])
    wished = controller.plan([request])
    assert wished == {request.owner: MAX_DEPTH}
    piece: Any = SimpleNamespace(sequence=request, rows=1, drafts=3)
    (tree,) = controller.propose([piece]).trees
    assert (tree.tokens, tree.parents, tree.proposer) == ((5, 6, 7), None, FORCED.key)
    (record,) = controller.record([Round(request, tree, Verdict((0, 1, 2), 8, "bonus"))], [], decoding_only=True)
    assert (record.proposer, record.draft_tokens, record.accepted) == (FORCED.key, 3, (1, 1, 1))
    controller.plan([request])
    piece.drafts = 0
    assert controller.propose([piece]).trees == [NO_DRAFT]
    request.options = request.options._replace(forced_tokens=False)
    assert controller.plan([request]) == {}

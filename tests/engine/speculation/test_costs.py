"""Measured costs: medians that a delayed step does not move, lines between what was measured."""

from __future__ import annotations

import random

import pytest

from engine.speculation.costs import KEPT, OLD, Costs, Recent, binned


def test_costs_between_measured_rows_lie_on_a_line() -> None:
    costs = Costs()
    costs.observe_target(4, 1.0)
    costs.observe_target(8, 2.0)
    assert costs.target(2) is None
    assert costs.target(6) == pytest.approx(1.5)
    assert costs.target(50) == pytest.approx(2.0)


def test_delayed_steps_do_not_move_them() -> None:
    costs = Costs()
    rng = random.Random(0)
    for _ in range(400):
        rows = rng.choice([1, 5])
        costs.observe_target(rows, (1.0 + 0.1 * (rows - 1)) * (3.0 if rng.random() < 0.1 else 1.0))
        assert costs.target(1) in (None, 1.0, 1.4, 3.0)
    assert (costs.target(1), costs.target(5)) == (1.0, 1.4)


def test_fewer_rows_never_cost_more() -> None:
    """One unlucky measurement of two rows does not forbid guessing one ahead."""
    costs = Costs()
    costs.observe_target(1, 1.0)
    costs.observe_target(2, 2.4)
    costs.observe_target(5, 1.2)
    assert costs.target(2) == 1.2


def test_old_measurements_go_when_new_ones_come() -> None:
    recent = Recent()
    for step in range(KEPT):
        recent.add(step, 5.0)
    recent.add(OLD + KEPT + 1, 1.0)
    assert recent.median == 1.0


def test_large_counts_are_measured_together() -> None:
    assert [binned(count) for count in range(1, 17)] == list(range(1, 17))
    for count in range(17, 600):
        assert abs(binned(count) - count) <= count / 16
    assert len({binned(count) for count in range(1, 4097)}) < 160
    costs = Costs()
    costs.observe_target(67, 1.0)
    assert costs.target(67) == 1.0


def test_proposing_by_depth_and_by_the_number_of_sequences() -> None:
    costs = Costs()
    assert costs.proposing("draft", 1, 4) == 0.0
    costs.observe_proposer("draft", 1, 4, passes=4, seconds=0.4)
    costs.observe_proposer("draft", 64, 4, passes=4, seconds=0.8)
    assert costs.proposing("draft", 1, 2) == pytest.approx(0.2)
    assert costs.proposing("draft", 1, 8) == pytest.approx(0.8)
    assert costs.proposing("draft", 50, 4) == pytest.approx(0.8)
    costs.observe_proposer("draft", 1, 8, passes=8, seconds=1.2)
    assert costs.proposing("draft", 1, 6) == pytest.approx(0.8)


def test_heads_that_guess_all_depths_at_once_cost_the_same_at_each() -> None:
    costs = Costs()
    costs.observe_proposer("medusa", 1, 4, passes=1, seconds=0.3)
    assert [costs.proposing("medusa", 1, depth) for depth in (1, 4, 8)] == [0.3, 0.3, 0.3]

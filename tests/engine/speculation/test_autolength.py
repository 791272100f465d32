"""The length follows acceptance and measured costs, gives up when guessing does not pay, and tries again."""

from __future__ import annotations

import pytest

from engine.speculation.autolength import (
    PROBE_EVERY,
    PROBE_LENGTH,
    REMEASURE_EVERY,
    Acceptance,
    Costs,
    DraftLength,
    expected_tokens,
)


def costs(per_row: float, draft: float, rows: int = 20) -> Costs:
    """A target step of ``1 + per_row * (rows - 1)``, a draft pass of ``draft``."""
    found = Costs()
    for count in range(1, rows):
        found.observe_target(count, 1.0 + per_row * (count - 1))
    found.observe_draft("draft", 1, draft)
    return found


def settled(acceptance: float, table: list[float], steps: int = 200) -> DraftLength:
    """A request whose guesses have been accepted at this share for a while."""
    length = DraftLength(0, Acceptance())
    for _ in range(steps):
        # In expectation: the tokens kept, and those reached.
        chosen = max(1, length.choose(table).length)
        length.acceptance._accepted = length.acceptance._accepted * 0.9 + acceptance * chosen
        length.acceptance._tried = length.acceptance._tried * 0.9 + chosen
    return length


def test_expected_tokens_is_the_sum_of_the_chances() -> None:
    for share in (0.0, 0.3, 0.9, 1.0):
        assert expected_tokens(share, 4) == pytest.approx(sum(share**i for i in range(5)))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize(("per_row", "draft"), [(0.02, 0.1), (0.2, 0.05), (0.0, 0.3)])
def test_the_best_length_by_brute_force_is_chosen(share: float, per_row: float, draft: float) -> None:
    table = costs(per_row, draft).table(1, "draft")
    assert table is not None
    length = settled(share, table)
    gains = {g: expected_tokens(length.acceptance.share, g) / (1 + per_row * g + draft * g) for g in range(1, 17)}
    best = max(gains, key=lambda g: gains[g])
    choice = length._best(table)
    assert choice.length == (best if gains[best] >= 1.05 else 0)
    assert bool(choice.reason) == (choice.length == 0)


def test_guessing_that_does_not_pay_stops_with_its_reason_and_is_probed() -> None:
    table = costs(0.3, 0.5).table(1, "draft")
    assert table is not None
    length = settled(0.2, table)
    choices = [length.choose(table) for _ in range(4 * PROBE_EVERY)]
    lengths = [choice.length for choice in choices]
    assert lengths.count(PROBE_LENGTH) == 4
    assert set(lengths) == {0, PROBE_LENGTH}
    assert any(choice.reason.startswith("guesses cost more than they save: ") for choice in choices)


def test_it_comes_back_when_guesses_hold_again() -> None:
    table = costs(0.05, 0.1).table(1, "draft")
    assert table is not None
    length = settled(0.02, table)
    assert length._best(table).length == 0
    for _ in range(40 * PROBE_EVERY):
        chosen = length.choose(table).length
        length.observe(chosen, chosen)
        if chosen > PROBE_LENGTH:
            return
    raise AssertionError("never tried again")


def test_a_plain_step_is_timed_first_and_again_now_and_then() -> None:
    assert Costs().table(1, "draft") is None
    length = DraftLength(0, Acceptance())
    assert length.choose(None) == (0, "")
    table = costs(0.01, 0.05).table(1, "draft")
    assert table is not None
    lengths = [length.choose(table).length for _ in range(3 * REMEASURE_EVERY)]
    assert lengths.count(0) == 3
    assert max(lengths) > 3


def test_a_fixed_length_is_kept_whatever_happens() -> None:
    length = DraftLength(5, Acceptance())
    for _ in range(200):
        length.observe(5, 0)
        assert length.choose([1.0, 9.0]) == (5, "")


def test_a_larger_batch_pays_less_for_guessing() -> None:
    """Rows stop being free where arithmetic binds: the measured costs say so."""
    found = Costs()
    for rows in range(1, 400):
        found.observe_target(rows, 1.0 if rows <= 32 else rows / 32)
    small, large = found.table(1, "draft"), found.table(32, "draft")
    assert small is not None
    assert large is not None
    assert small[4] == 1.0
    assert large[4] == pytest.approx(5.0)


def test_lengths_far_beyond_what_was_measured_are_tried_step_by_step() -> None:
    found = Costs()
    found.observe_target(1, 1.0)
    lengths = []
    for _ in range(4):
        table = found.table(1, "ngram")
        assert table is not None
        lengths.append(len(table) - 1)
        found.observe_target(len(table), 1.0)
    assert lengths == [4, 9, 16, 16]


def test_costs_between_measured_rows_lie_on_a_line() -> None:
    found = Costs()
    found.observe_target(4, 1.0)
    found.observe_target(8, 2.0)
    assert found.target(2) is None
    assert found.target(6) == pytest.approx(1.5)
    assert found.target(50) == pytest.approx(2.0)


def test_acceptance_forgets() -> None:
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.observe(4, 0)
    assert acceptance.share < 0.01
    for _ in range(100):
        acceptance.observe(4, 4)
    assert acceptance.share > 0.99

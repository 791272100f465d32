"""Measured step times: medians that a delayed step does not move, lines between what was measured."""

from __future__ import annotations

import random

import pytest

from engine.decoding.speculation.control.cost import NEAR, PLAIN, PLAIN_EVERY, SAMPLES, Recent, StepTimes, binned


def times(plain: float = 1.0, sequences: int = 1, **drafted: float) -> StepTimes:
    """``d4=1.5``: with four draft tokens a step took 1.5 seconds."""
    found = StepTimes()
    found.take_plain(sequences, plain)
    found.take_plain(sequences, plain)
    for name, seconds in drafted.items():
        found.take_drafted("draft", sequences, int(name[1:]), seconds)
    return found


def test_ratios_between_what_was_measured_lie_on_a_line() -> None:
    known = times(d4=1.5, d8=2.5)
    assert [known.ratio("draft", 1, count) for count in (2, 4, 6, 8, 10)] == pytest.approx([1.25, 1.5, 2.0, 2.5, 3.0])


def test_nothing_is_known_before_plain_steps_and_drafts_were_made() -> None:
    known = StepTimes()
    assert known.wants_plain(1)
    known.take_plain(1, 1.0)
    assert known.wants_plain(1), "one step may be a delayed one"
    known.take_plain(1, 1.0)
    assert not known.wants_plain(1)
    assert not known.knows("draft")
    assert known.ratio("draft", 1, 4) == 1.0
    known.take_drafted("draft", 2, 4, 3.0)
    assert not known.knows("draft"), "there is no plain step of two sequences to compare with"


def test_plain_steps_are_made_again_now_and_then() -> None:
    known = times()
    for _ in range(PLAIN_EVERY):
        assert not known.wants_plain(1)
        known.take_drafted("draft", 1, 4, 1.5)
    known.take_drafted("draft", 1, 4, 1.5)
    for _ in range(PLAIN):
        assert known.wants_plain(1)
        known.take_plain(1, 1.0)
    assert not known.wants_plain(1)


def test_a_machine_that_becomes_slower_makes_drafts_no_dearer() -> None:
    """Steps are compared with plain ones a few steps before them, not with those of another time."""
    known = StepTimes()
    for speed in (1.0, 3.0, 0.5, 2.0):
        for _ in range(PLAIN):
            known.take_plain(1, speed)
        for _ in range(NEAR):
            known.take_drafted("draft", 1, 4, 1.5 * speed)
        for _ in range(2 * NEAR):
            known.take_drafted("draft", 1, 4, 9.0)  # by now the machine may be another
        assert known.ratio("draft", 1, 4) == pytest.approx(1.5)


def test_delayed_steps_do_not_move_them() -> None:
    known, rng = StepTimes(), random.Random(0)
    for _ in range(400):
        for _ in range(PLAIN):
            known.take_plain(1, 3.0 if rng.random() < 0.1 else 1.0)
        known.take_drafted("draft", 1, 4, 4.2 if rng.random() < 0.1 else 1.4)
    assert known.ratio("draft", 1, 4) == pytest.approx(1.4)


def test_fewer_draft_tokens_never_cost_more() -> None:
    """One unlucky measurement of one draft token does not forbid it."""
    assert times(d1=2.4, d5=1.2).ratio("draft", 1, 1) == pytest.approx(1.2)


def test_old_measurements_go_when_new_ones_come() -> None:
    recent = Recent()
    for _ in range(SAMPLES):
        recent.add(5.0)
    for _ in range(SAMPLES // 2 + 1):
        recent.add(1.0)
    assert recent.median == 1.0


def test_a_price_that_was_long_not_paid_gives_way_to_newer_ones() -> None:
    known = times(d2=1.2, d8=9.0)
    assert known.ratio("draft", 1, 8) == pytest.approx(9.0)
    for _ in range(PLAIN_EVERY):
        known.take_plain(1, 1.0)
    known.take_drafted("draft", 1, 2, 1.2)
    assert known.ratio("draft", 1, 8) == pytest.approx(1.8)
    for _ in range(PLAIN_EVERY):
        known.take_plain(1, 1.0)
    assert known.ratio("draft", 1, 2) == pytest.approx(1.2), "old ones are better than none"


def test_a_shape_that_is_new_is_priced_wherever_it_is_first_drafted() -> None:
    """Else it would be drafted at an estimated price until the next plain step."""
    known = times(d2=1.2)
    for _ in range(2 * NEAR):
        known.take_drafted("draft", 1, 2, 1.2)
    assert known.ratio("draft", 1, 16) == pytest.approx(2.6)
    known.take_drafted("draft", 1, 16, 7.0)
    assert known.ratio("draft", 1, 16) == pytest.approx(7.0)


def test_another_batch_size_is_believed_to_be_as_the_nearest() -> None:
    known = times(sequences=4, d16=2.0)
    assert known.ratio("draft", 8, 32) == pytest.approx(2.0)
    assert known.ratio("draft", 8, 16) == pytest.approx(1.5)


def test_large_counts_are_measured_together() -> None:
    assert [binned(count) for count in range(1, 17)] == list(range(1, 17))
    for count in range(17, 600):
        assert abs(binned(count) - count) <= count / 16
    assert len({binned(count) for count in range(1, 4097)}) < 160

"""Segments of steps with and without guesses: what they say of costs, whatever delays single steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from engine.speculation.neighbours import LAST_SPACING, Guessed, Neighbours, Round


def run(
    neighbours: Neighbours, steps: int, seconds: Callable[[bool], float], tokens: int = 2, believed: float = 1.0
) -> list[float]:
    """Steps with guesses but where a plain one is due; returns the pairs."""
    pairs: list[float] = []
    for step in range(steps):
        if neighbours.due:
            neighbours.take_plain(step, seconds(False))
        else:
            rounds = [Round(tokens, pairs.append)]
            neighbours.take_guessed(step, Guessed(seconds(True), "draft", lambda: believed, rounds))
    return pairs


def test_pairs_are_seconds_per_token_of_neighbours() -> None:
    pairs = run(Neighbours(1), 400, lambda guessed: 3.0 if guessed else 2.0, tokens=2)
    assert len(pairs) >= 5
    assert pairs == pytest.approx([0.75] * len(pairs))


def test_plain_steps_are_ever_rarer() -> None:
    neighbours = Neighbours(1)
    plain = []
    for step in range(2000):
        if neighbours.due:
            plain.append(step)
            neighbours.take_plain(step, 1.0)
        else:
            neighbours.take_guessed(step, Guessed(1.0, "draft", lambda: 1.0, []))
    assert len(plain) <= 2 * (2000 / LAST_SPACING + 5)
    assert max(b - a for a, b in pairwise(plain)) <= LAST_SPACING + 1


def test_a_machine_that_slows_down_and_delays_steps_changes_no_pair_much() -> None:
    rng = random.Random(5)
    step = 0

    def seconds(guessed: bool) -> float:
        nonlocal step
        step += 1
        return (3.0 if guessed else 2.0) * (1 + step / 1000) * (3.0 if rng.random() < 0.1 else 1.0)

    pairs = sorted(run(Neighbours(1), 2000, seconds, tokens=2))
    assert pairs[len(pairs) // 2] == pytest.approx(0.75, rel=0.08)


def test_the_correction_is_what_the_parts_leave_out() -> None:
    neighbours = Neighbours(1)
    assert neighbours.correction("draft") == 1.0
    run(neighbours, 300, lambda guessed: 3.0 if guessed else 2.0, believed=1.25)
    assert neighbours.correction("draft") == pytest.approx(1.2)
    assert neighbours.correction("ngram") == 1.0


def test_few_who_guess_among_many_bear_what_they_add() -> None:
    neighbours = Neighbours(4)
    pairs: list[float] = []
    for step in range(40):
        if neighbours.due:
            neighbours.take_plain(step, 1.0)
        else:
            neighbours.take_guessed(step, Guessed(1.25, "draft", lambda: 1.25, [Round(2, pairs.append)]))
    assert pairs
    assert pairs == pytest.approx([1.0] * len(pairs))


def test_steps_of_long_ago_are_no_neighbours() -> None:
    neighbours = Neighbours(1)
    pairs: list[float] = []
    neighbours.take_plain(1, 1.0)
    for step in range(2, 10):
        neighbours.take_guessed(step, Guessed(9.0, "draft", lambda: 1.0, [Round(1, pairs.append)]))
    for step in range(1000, 1004):
        neighbours.take_plain(step, 1.0)
    assert not pairs
    assert neighbours.correction("draft") == 1.0

"""Acceptance by depth and the tokens that follow from it."""

from __future__ import annotations

import random

import pytest

from engine.decoding.speculation.control.stats import AcceptanceStats, expected_tokens


def test_expected_tokens_is_the_sum_of_the_chances() -> None:
    for share in (0.0, 0.3, 0.9, 1.0):
        assert expected_tokens(share, 4) == pytest.approx(sum(share**i for i in range(5)))


def test_each_depth_has_a_chance_of_its_own() -> None:
    chances = (0.9, 0.5, 0.1, 0.6)
    rng = random.Random(3)
    acceptance = AcceptanceStats(branches=False)
    for _ in range(4000):
        kept = next((i for i, chance in enumerate(chances) if rng.random() >= chance), len(chances))
        acceptance.observe(4, 4, kept)
    assert acceptance.share(4, 1) == pytest.approx(0.9, abs=0.12)
    assert acceptance.tokens(4, 2) == pytest.approx(1 + 0.9 + 0.45, abs=0.15)


def test_an_even_chance_gives_the_formula() -> None:
    acceptance = AcceptanceStats(branches=False)
    for length in range(6):
        assert acceptance.tokens(5, length) == pytest.approx(expected_tokens(0.7, length))
    assert acceptance.share(5, 5) == pytest.approx(0.7)


def test_it_follows_a_change_of_text() -> None:
    acceptance = AcceptanceStats(branches=False, prior=AcceptanceStats(branches=False))
    for kept, low, high in ((4, 0.9, 1.0), (0, 0.0, 0.15), (4, 0.85, 1.0)):
        for _ in range(60):
            acceptance.observe(4, 4, kept)
        assert low < acceptance.share(4, 1) <= high


def test_a_new_request_begins_with_what_all_saw() -> None:
    shared = AcceptanceStats(branches=False)
    first = AcceptanceStats(branches=False, prior=shared)
    for _ in range(300):
        first.observe(3, 3, 0)
    assert AcceptanceStats(branches=False, prior=shared).share(3, 1) < 0.1


def test_draft_tokens_asked_for_and_not_made_are_not_accepted() -> None:
    """Heads that reach four deep promise no more than four tokens for eight."""
    acceptance = AcceptanceStats(branches=True)
    for _ in range(300):
        acceptance.observe(16, 8, 4)
    assert acceptance.tokens(16, 4) > 4.5
    assert acceptance.tokens(16, 8) - acceptance.tokens(16, 4) < 0.2


def test_sizes_of_trees_are_told_apart_and_larger_ones_are_hoped_for() -> None:
    acceptance = AcceptanceStats(branches=True)
    for _ in range(300):
        acceptance.observe(4, 2, 0)
        acceptance.observe(32, 2, 2)
    assert acceptance.share(4, 1) < 0.11
    assert acceptance.share(32, 1) > 0.9
    assert acceptance.share(4, 1) < acceptance.share(8, 1) < acceptance.share(16, 1) < 0.5

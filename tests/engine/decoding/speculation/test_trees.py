"""Trees of drafts are trees, of the size asked for, and none of that size is worth more."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.speculation.medusa.accuracy import RANKS, REFIT_EVERY, HeadAccuracy, default_accuracies
from engine.decoding.speculation.proposers.trees import DraftNode, best_tree, static_tree, without_branches

SHARE = st.floats(0.0, 1.0, allow_nan=False)
ROWS = st.lists(st.lists(SHARE, min_size=1, max_size=5), min_size=1, max_size=4)


@st.composite
def candidates(draw: st.DrawFn, most: int = 24) -> list[DraftNode]:
    count = draw(st.integers(0, most))
    return [DraftNode(draw(st.integers(0, 99)), draw(st.integers(-1, i - 1)), draw(SHARE)) for i in range(count)]


def path(nodes: list[DraftNode], place: int) -> list[int]:
    found = []
    while place >= 0:
        found.append(place)
        place = nodes[place].parent
    return found


def worth(nodes: list[DraftNode], places: tuple[int, ...]) -> float:
    """The expected number of accepted drafts of a tree of these candidates."""
    return sum(math.prod(nodes[place].confidence for place in path(nodes, end)) for end in places)


@given(candidates(), st.integers(0, 30))
def test_the_best_tree_is_a_tree_of_candidates(nodes: list[DraftNode], size: int) -> None:
    tree = best_tree(nodes, size)
    parents = tree.parents if tree.parents is not None else tuple(range(-1, len(tree.tokens) - 1))
    assert len(tree.tokens) == len(parents) == len(set(tree.nodes)) == min(size, len(nodes))
    for draft, place in enumerate(tree.nodes):
        assert -1 <= parents[draft] < draft
        assert tree.tokens[draft] == nodes[place].token
        assert nodes[place].parent == (tree.nodes[parents[draft]] if parents[draft] >= 0 else -1)


@given(candidates(), st.integers(1, 30))
def test_the_best_tree_comes_most_probable_first(nodes: list[DraftNode], size: int) -> None:
    tree = best_tree(nodes, size)
    values = [worth(nodes, (place,)) for place in tree.nodes]
    assert all(a >= b - 1e-12 for a, b in pairwise(values))
    for smaller in range(size):
        assert best_tree(nodes, smaller).nodes == tree.nodes[:smaller]


@given(candidates(most=9), st.integers(1, 9))
def test_no_tree_of_candidates_is_worth_more(nodes: list[DraftNode], size: int) -> None:
    best = 0.0
    for places in combinations(range(len(nodes)), min(size, len(nodes))):
        if all(nodes[place].parent in (-1, *places) for place in places):
            best = max(best, worth(nodes, places))
    assert worth(nodes, best_tree(nodes, size).nodes) == pytest.approx(best, abs=1e-9)


def test_the_best_tree_of_a_small_example() -> None:
    """Products .6, .3, .54, .108, .3: the fourth is left out, and of the two that are worth .3 the earlier leads."""
    nodes = [
        DraftNode(7, -1, 0.6),
        DraftNode(8, -1, 0.3),
        DraftNode(9, 0, 0.9),
        DraftNode(5, 2, 0.2),
        DraftNode(6, 0, 0.5),
    ]
    assert best_tree(nodes, 4) == ((7, 9, 8, 6), (-1, 0, -1, 0), (0, 2, 1, 4))
    assert best_tree(nodes, 2) == ((7, 9), None, (0, 2))
    assert best_tree([], 5) == ((), None, ())


def test_a_confidence_that_rounding_lifted_above_one_does_not_put_a_child_first() -> None:
    assert best_tree([DraftNode(1, -1, 0.5), DraftNode(2, 0, 1.0 + 1e-7)], 1).tokens == (1,)


@given(st.integers(0, 20))
def test_only_chains_have_no_branches(length: int) -> None:
    assert without_branches(tuple(range(-1, length - 1))) is None
    assert without_branches((*range(-1, length - 1), -1)) == (None if length == 0 else (*range(-1, length - 1), -1))


# --- trees of ranks ----------------------------------------------------------------------------------------------


def expected(paths: list[tuple[int, ...]], rows: list[list[float]]) -> float:
    return sum(math.prod(rows[head][rank] for head, rank in enumerate(found)) for found in paths)


@given(ROWS, st.integers(0, 70))
def test_a_static_tree_is_a_tree_of_ranks(rows: list[list[float]], size: int) -> None:
    paths = static_tree(rows, size)
    assert len(paths) == len(set(paths)) <= size
    possible = 0
    level = 1
    for row in rows:
        level *= sum(1 for share in row if share > 0)
        possible += level
    if all(share == 0 or share > 1e-3 for row in rows for share in row):  # none of their products is 0
        assert len(paths) == min(size, possible)
    for place, found in enumerate(paths):
        assert 1 <= len(found) <= len(rows)
        assert all(0 <= rank < len(rows[head]) for head, rank in enumerate(found))
        assert len(found) == 1 or found[:-1] in paths[:place]


@given(ROWS, st.integers(1, 70))
def test_every_beginning_of_a_static_tree_is_the_tree_of_that_size(rows: list[list[float]], size: int) -> None:
    paths = static_tree(rows, size)
    values = [expected([found], rows) for found in paths]
    assert all(a >= b - 1e-12 for a, b in pairwise(values))
    for smaller in (0, 1, size // 2):
        assert static_tree(rows, smaller) == paths[:smaller]


@given(st.lists(st.lists(SHARE, min_size=1, max_size=3), min_size=1, max_size=2), st.integers(1, 6))
def test_no_static_tree_expects_more(rows: list[list[float]], size: int) -> None:
    everything: list[tuple[int, ...]] = [(first,) for first in range(len(rows[0]))]
    if len(rows) > 1:
        everything += [(first, second) for first in range(len(rows[0])) for second in range(len(rows[1]))]
    best = 0.0
    for paths in combinations(everything, min(size, len(everything))):
        if all(len(found) == 1 or found[:-1] in paths for found in paths):
            best = max(best, expected(list(paths), rows))
    assert expected(static_tree(rows, size), rows) == pytest.approx(best, abs=1e-9)


def test_a_static_tree_follows_accuracies_and_not_ranks() -> None:
    assert static_tree([[0.1, 0.8], [0.5, 0.0]], 3) == [(1,), (1, 0), (0,)]


# --- what was seen -----------------------------------------------------------------------------------------------


def test_assumed_accuracies_are_probabilities() -> None:
    for row in default_accuracies(5):
        assert len(row) == RANKS
        assert sum(row) < 1.0
        assert row == sorted(row, reverse=True)


def test_the_tree_moves_to_the_choices_that_hold() -> None:
    accuracy = HeadAccuracy([[0.6, 0.2], [0.6, 0.2]], forget=0.98, weight=16.0)
    assert accuracy.tree(2)[0] == (0,)
    for _ in range(10 * REFIT_EVERY):
        accuracy.observe([1, 0])
    assert accuracy.tree(2)[:2] == [(1,), (1, 0)]
    shares = accuracy.shares
    assert shares[0][1] > 0.9
    assert shares[0][0] < 0.1
    assert shares[1][0] > 0.9
    assert accuracy.tree(1) == [(1,), (0,)], "no deeper than it may be"


def test_a_head_that_was_not_reached_keeps_its_figures() -> None:
    accuracy = HeadAccuracy([[0.6], [0.5]], forget=0.98, weight=16.0)
    accuracy.observe([None])
    assert accuracy.shares[1] == [0.5]
    assert accuracy.shares[0][0] == pytest.approx(16 * 0.6 * 0.98 / (16 * 0.98 + 1))


def test_a_head_that_is_never_right_loses_its_place() -> None:
    """Where only the first head knows anything, its choices fill the tree and not what would follow them."""
    accuracy = HeadAccuracy(default_accuracies(2), forget=0.98, weight=16.0)
    before = accuracy.tree(2)[:RANKS]
    for number in range(10 * REFIT_EVERY):
        accuracy.observe([number % 5, None])
    after = accuracy.tree(2)[:RANKS]
    assert any(len(path) == 2 for path in before)
    assert {path for path in after if len(path) == 1} >= {(rank,) for rank in range(5)}
    assert after[:5] == [path for path in after[:5] if len(path) == 1]


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 2)), min_size=1, max_size=2), max_size=200))
def test_shares_stay_shares(steps: list[list[int | None]]) -> None:
    accuracy = HeadAccuracy([[0.5, 0.3, 0.2], [0.4, 0.4, 0.1]], forget=0.9, weight=4.0)
    for ranks in steps:
        accuracy.observe(ranks)
    for row in accuracy.shares:
        assert all(0.0 <= share <= 1.0 for share in row)
        assert sum(row) <= 1.0 + 1e-9

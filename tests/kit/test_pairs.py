"""Cases by pairs: what is covered, what is long, and what a case is called."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.pairs import covering, each_value, pairs

Cases = list[tuple[int, ...]]


def pairs_of(cases: Cases) -> set[Any]:
    """Every two values of two axes that stand together in a case."""
    return {(one, other, case[one], case[other]) for case in cases for one, other in combinations(range(len(case)), 2)}


SIZES = st.lists(st.integers(1, 5), min_size=2, max_size=4)


@given(SIZES)
def test_every_pair_is_in_a_case(sizes: list[int]) -> None:
    """Of a product, in which each pair of values occurs; and no two cases are needed for what one has."""
    cases = list(product(*map(range, sizes)))
    chosen = covering(cases)
    largest, second = sorted(sizes)[:-3:-1]
    assert pairs_of([cases[index] for index in chosen]) == pairs_of(cases)
    assert len(pairs_of(cases)) == sum(one * other for one, other in combinations(sizes, 2))
    assert largest * second <= len(chosen) <= len(cases)
    assert covering(cases) == chosen


@given(st.data())
def test_what_the_product_has_not_is_not_missed(data: st.DataObject) -> None:
    everything = list(product(*map(range, data.draw(SIZES))))
    cases = data.draw(st.lists(st.sampled_from(everything), min_size=1, unique=True))
    chosen = [cases[index] for index in covering(cases)]
    assert set(chosen) <= set(cases)
    assert pairs_of(chosen) == pairs_of(cases)


def test_no_case_more_than_needed_for_axes_as_the_families_have() -> None:
    """Which then have nearly all triples with the short axes, too: 6 cases of a family have all 4 of the last two."""
    cases = list(product(range(38), range(6), range(2), range(2)))
    chosen = [cases[index] for index in covering(cases)]
    assert len(chosen) <= 1.05 * 38 * 6
    assert {(family, *others) for family, _, *others in chosen} == set(product(range(38), range(2), range(2)))


def test_one_axis_is_taken_whole() -> None:
    assert covering([(0,), (1,), (2,)]) == {0, 1, 2}
    assert covering([]) == set()


def params_of(mark: Any) -> dict[str, tuple[tuple[Any, ...], bool]]:
    """Values of each id, and whether the case is long."""
    return {param.id: (param.values, bool(param.marks)) for param in mark.args[1]}


def test_the_rest_of_the_product_is_long() -> None:
    mark = pairs(a=[1, 2, 3], b=["x", "y"], c=[False, True]).mark
    found = params_of(mark)
    assert mark.args[0] == ["a", "b", "c"]
    assert list(found) == [f"{a}-{b}-{c}" for a in (1, 2, 3) for b in "xy" for c in (False, True)]
    assert found["2-y-True"][0] == (2, "y", True)
    assert sum(not long for _, long in found.values()) == 6


def test_ids_are_names() -> None:
    odd = [{"temperature": 0.0}, {}]
    found = params_of(pairs(dtype=[torch.float16, None], kind=[("kivi", 4, 2), int], shapes={"one": [1]}, odd=odd).mark)
    assert list(found)[0::2] == [
        "float16-('kivi', 4, 2)-one-odd0",
        "float16-int-one-odd0",
        "None-('kivi', 4, 2)-one-odd0",
        "None-int-one-odd0",
    ]
    assert found["None-int-one-odd1"][0] == (None, int, [1], {})


def test_cases_that_do_not_exist_stand_for_no_pair() -> None:
    """Where b is 0, a is 0: what they have in common with c has to come from others."""
    found = params_of(pairs(without=lambda a, b, c: b == 0 and a > 0, a=range(3), b=range(3), c=range(3)).mark)
    assert len(found) == 27 - 6
    short = [values for values, long in found.values() if not long]
    assert {(b, c) for _, b, c in short} == set(product(range(3), range(3)))
    assert {(a, c) for a, _, c in short} == set(product(range(3), range(3)))


def test_each_value_is_in_as_few_cases_as_there_can_be() -> None:
    """Those of an axis that are for `make test-all` alone are not among them."""
    found = params_of(each_value(seldom=lambda a, **others: a == 4, a=range(5), b=range(3), c=range(2)).mark)
    assert len(found) == 30
    short = [values for values, long in found.values() if not long]
    assert [set(axis) for axis in zip(*short, strict=True)] == [{0, 1, 2, 3}, {0, 1, 2}, {0, 1}]
    assert len(short) == 4

"""Cases by pairs: `make test` runs every pair of values of two axes, `make test-all` every combination of all axes.

Most faults need one value or two: a family that leaves a tensor on the host, a kind of cache on one backend. One that
shows only where three axes have certain values at once is left to `make test-all`. Of dear cases whose axes have
little to do with each other :func:`each_value` takes fewer still.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import combinations, product
from typing import Any

import pytest


def pairs(
    without: Callable[..., bool] | None = None,
    seldom: Callable[..., bool] | None = None,
    indirect: Sequence[str] = (),
    cover: Callable[[Sequence[tuple[int, ...]]], set[int]] | None = None,
    **axes: Sequence[Any] | Mapping[str, Any],
) -> pytest.MarkDecorator:
    """Parametrises a test by axes, each the values of one argument: ``@pairs(kind=KINDS, window=[None, 20])``.

    The cases are the product in its order; those that :func:`covering` leaves out are marked long. A mapping names its
    values in the ids. ``without`` gets a combination by the names of the axes and is True where there is no such case;
    ``seldom``, where it is for `make test-all` alone. ``indirect`` names the axes that are fixtures, as for
    `pytest.mark.parametrize`.
    """
    named = [_named(name, values) for name, values in axes.items()]

    def values(case: tuple[int, ...]) -> dict[str, Any]:
        return {name: named[axis][place][1] for axis, (name, place) in enumerate(zip(axes, case, strict=True))}

    cases = list(product(*(range(len(each)) for each in named)))
    cases = [case for case in cases if without is None or not without(**values(case))]
    often = [case for case in cases if seldom is None or not seldom(**values(case))]
    short = {often[place] for place in (cover or covering)(often)}
    params = [
        pytest.param(
            *values(case).values(),
            id="-".join(named[axis][place][0] for axis, place in enumerate(case)),
            marks=() if case in short else pytest.mark.long,
        )
        for case in cases
    ]
    return pytest.mark.parametrize(list(axes), params, indirect=list(indirect))


def each_choice(cases: Sequence[tuple[int, ...]]) -> set[int]:
    """Indices of as few of ``cases`` as have every value, as a rule those of the longest axis; the others' in turn."""
    chosen: set[int] = set()
    uses: Counter[tuple[int, int]] = Counter()
    while missing := {value for case in cases for value in enumerate(case)} - uses.keys():
        rest = (index for index in range(len(cases)) if index not in chosen)
        best = min(
            rest, key=lambda i: (-len(missing & {*enumerate(cases[i])}), sum(uses[v] for v in enumerate(cases[i])))
        )
        chosen.add(best)
        uses.update(enumerate(cases[best]))
    return chosen


each_value = partial(pairs, cover=each_choice)
"""The same where `make test` takes :func:`each_choice` of the cases."""


def covering(cases: Sequence[tuple[int, ...]]) -> set[int]:
    """Indices of some of ``cases``, in which every pair of two axes' values occurs that occurs in any of them.

    Greedy: the next case is the one with most pairs that no other has yet; among equals with most triples that no other
    has, which cost nothing more; then the first. There are not always as few as there could be, but equal cases give
    equal ones. Of one axis all cases are taken.
    """
    held = [[frozenset(combinations(enumerate(case), min(size, len(case)))) for size in (2, 3)] for case in cases]
    seen: list[set[Any]] = [set(), set()]

    def adds(index: int) -> list[int]:
        return [-len(some - before) for some, before in zip(held[index], seen, strict=True)]

    chosen: set[int] = set()
    # What a case adds can only shrink, so an entry whose numbers are still right is the best.
    heap = [(adds(index), index) for index in range(len(cases))]
    heapify(heap)
    while heap:
        stale, index = heappop(heap)
        added = adds(index)
        if added[0] == 0:
            continue
        if added != stale:
            heappush(heap, (added, index))
            continue
        chosen.add(index)
        for some, before in zip(held[index], seen, strict=True):
            before |= some
    return chosen


def _named(name: str, values: Sequence[Any] | Mapping[str, Any]) -> list[tuple[str, Any]]:
    """An axis's values with what stands for each in an id."""
    if isinstance(values, Mapping):
        return list(values.items())
    return [(_text(value) or f"{name}{index}", value) for index, value in enumerate(values)]


def _text(value: Any) -> str:
    """A short name; none of what has a long or an odd one."""
    text = str(getattr(value, "__name__", value)).removeprefix("torch.")
    return text if re.fullmatch(r"[\w .,+()'/]{1,40}", text) else ""

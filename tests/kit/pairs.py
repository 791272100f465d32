"""Cases by pairs: `make test` runs every pair of values of two axes, `make test-all` every combination of all axes.

Most faults need one value or two: a family that leaves a tensor on the host, a kind of cache on one backend. One that
shows only where three axes have certain values at once is left to `make test-all`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations, product
from typing import Any

import pytest


def pairs(
    without: Callable[..., bool] | None = None, indirect: Sequence[str] = (), **axes: Sequence[Any] | Mapping[str, Any]
) -> pytest.MarkDecorator:
    """Parametrises a test by axes, each the values of one argument: ``@pairs(kind=KINDS, window=[None, 20])``.

    The cases are the product in its order; those that :func:`covering` leaves out are marked long. A mapping names its
    values in the ids. ``without`` gets a combination by the names of the axes and is True where there is no such case.
    ``indirect`` names the axes that are fixtures, as for `pytest.mark.parametrize`.
    """
    named = [_named(name, values) for name, values in axes.items()]
    cases = list(product(*(range(len(values)) for values in named)))
    chosen = [[named[axis][place] for axis, place in enumerate(case)] for case in cases]
    if without is not None:
        kept = [not without(**dict(zip(axes, (value for _, value in each), strict=True))) for each in chosen]
        cases, chosen = ([each for each, keep in zip(some, kept, strict=True) if keep] for some in (cases, chosen))
    short = covering(cases)
    params = [
        pytest.param(
            *(value for _, value in each),
            id="-".join(text for text, _ in each),
            marks=() if place in short else pytest.mark.long,
        )
        for place, each in enumerate(chosen)
    ]
    return pytest.mark.parametrize(list(axes), params, indirect=list(indirect))


def covering(cases: Sequence[tuple[int, ...]]) -> set[int]:
    """Indices of some of ``cases``, in which every pair of two axes' values occurs that occurs in any of them.

    Greedy: the next case is the one with most pairs that no other has yet, the first of equals. There are not always as
    few as there could be, but equal cases give equal ones. Of one axis all cases are taken.
    """
    held = [frozenset(combinations(enumerate(case), min(2, len(case)))) for case in cases]
    missing = set().union(*held)
    chosen: set[int] = set()
    # What a case adds can only shrink, so an entry whose number is still right is the largest.
    heap = [(-len(each), index) for index, each in enumerate(held)]
    heapify(heap)
    while missing:
        gain, index = heappop(heap)
        added = held[index] & missing
        if len(added) == -gain:
            chosen.add(index)
            missing -= added
        elif added:
            heappush(heap, (-len(added), index))
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

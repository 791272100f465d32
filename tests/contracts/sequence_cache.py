"""Caches of sequences: whatever comes, goes, forks and gives way, everybody reads their own text, and all comes back.

A kind names its histories (`Fuzz`), a house with little memory, and faults that would be noticed: what is replaced and
what by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import pytest

from engine.cache.pool import OutOfPages
from engine.decoding.scheduling.plan import Limits
from tests.contracts.registration import Contract
from tests.engine.cache.sequences_support import Asked, Fuzz, House, prompt

ALWAYS, SEEDS, MORE_SEEDS = 2, 8, 40
"""Histories of `make test` where nothing has changed (tests/kit/content.py), where something has, and of all."""


class Fault(NamedTuple):
    owner: Any
    name: str
    wrong: Any


def _mark_of(seed: int) -> pytest.MarkDecorator | tuple[()]:
    return pytest.mark.always if seed < ALWAYS else pytest.mark.long if seed >= SEEDS else ()


class SequenceCacheContract(Contract):
    kind: ClassVar[str]
    tight: ClassVar[Mapping[str, Any]]
    """Options of a `House` whose memory for this kind a prompt does not fit in at once."""
    cases: ClassVar[Mapping[str, Mapping[str, Fault]]]

    @pytest.mark.parametrize("seed", [pytest.param(seed, marks=_mark_of(seed)) for seed in range(MORE_SEEDS)])
    def test_any_history_leaves_everybody_their_own(self, seed: int) -> None:
        Fuzz(seed, self.kind).play(150)

    @pytest.mark.long
    @pytest.mark.timeout(3000)
    @pytest.mark.parametrize("part", range(10))
    def test_a_hundred_thousand_operations(self, part: int) -> None:
        for seed in range(20):
            Fuzz(1000 * (part + 1) + seed, self.kind).play(500)

    @pytest.mark.always
    @pytest.mark.parametrize("chunked", [True, False])
    def test_more_rows_than_there_is_room_for_at_once(self, chunked: bool) -> None:
        house = House(80, limits=Limits(4096, chunked), **self.tight)
        asked = house.add(Asked(0, 0, prompt((1, 700)), 5, namespace=None))
        house.add(Asked(1, 0, prompt((0, 300)), 5, namespace=None))
        house.drain(400)
        assert asked in house.done
        assert not house.failed

    @pytest.mark.slow
    def test_a_fault_would_be_noticed(self, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fault.owner, fault.name, fault.wrong)
        with pytest.raises((AssertionError, OutOfPages)):
            some_histories(self.kind)


def some_histories(kind: str) -> None:
    for seed in range(SEEDS):
        Fuzz(seed, kind).play(150)

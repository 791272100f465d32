"""Page policies: functions of a row's index alone, and a page that dies is never read again.

A kind names its policies, as a strategy of Hypothesis.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.cache.policies import PagePolicy

INDICES = st.integers(0, 2000)
any_kind = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])


def seen(policy: PagePolicy, index: int) -> set[int]:
    """The keys that a row may see."""
    first, sinks, _ = policy.sights(np.array([index]))
    return {*range(int(sinks[0])), *range(int(first[0]), index + 1)}


def pages(policy: PagePolicy, index: int) -> set[int]:
    return {key // 16 for key in seen(policy, index)}


class PagePolicyContract:
    policies: ClassVar[st.SearchStrategy[PagePolicy]]

    @any_kind
    @given(st.data(), st.lists(INDICES, min_size=1, max_size=30))
    def test_rows_do_not_know_each_other(self, data: st.DataObject, rows: list[int]) -> None:
        policy = data.draw(self.policies)
        together, chosen = policy.sights(np.array(rows)), policy.chosen(np.array(rows))
        for i, index in enumerate(rows):
            alone, mine = policy.sights(np.array([index])), policy.chosen(np.array([index]))
            assert [int(part[i]) for part in together] == [int(part[0]) for part in alone]
            assert (chosen is None and mine is None) or (chosen[i] == mine[0])  # type: ignore[index]

    @any_kind
    @given(st.data(), st.integers(0, 900), st.integers(0, 400))
    def test_dead_pages_are_never_read_later(self, data: st.DataObject, committed: int, later: int) -> None:
        policy = data.draw(self.policies)
        dead = set(range(*policy.dead_pages(committed)))
        assert not dead & pages(policy, committed + later)
        assert not dead - set(range(committed // 16 + 1))
        assert dead <= set(range(*policy.dead_pages(committed + later))), "what is dead stays dead"

    @any_kind
    @given(st.data(), st.integers(1, 3000))
    def test_a_sequence_holds_no_more_than_is_planned(self, data: st.DataObject, length: int) -> None:
        """``length`` - 1 tokens are there and one is being written."""
        policy = data.draw(self.policies)
        first, last = policy.dead_pages(length - 1)
        assert -(-length // 16) - max(0, last - first) <= policy.kept_pages(length)

    @any_kind
    @given(st.data(), INDICES)
    def test_positions_count_what_is_kept(self, data: st.DataObject, index: int) -> None:
        """The row is the last of the keys that it sees, wherever it stands in the text."""
        policy = data.draw(self.policies)
        first, sinks, at = policy.sights(np.array([index]))
        assert int(at[0]) == len(seen(policy, index)) - 1 or (first[0] > 0 and sinks[0] == 0)
        assert int(at[0]) <= index
        if first[0] == 0:
            assert int(at[0]) == index

    @any_kind
    @given(st.data(), INDICES)
    def test_what_hides_keys_says_so(self, data: st.DataObject, index: int) -> None:
        policy = data.draw(self.policies)
        chosen = policy.chosen(np.array([index]))
        if seen(policy, index) != set(range(index + 1)) or (chosen is not None and chosen[0]):
            assert policy.restricts(index + 1)

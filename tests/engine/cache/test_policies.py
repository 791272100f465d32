"""Page policies: functions of a row's index, pages that die for good, constant memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.policies import KeepAll, WindowWithSinks
from engine.cache.technique import policy_of
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.protocol import keys
from tests.contracts.page_policy import INDICES, PagePolicyContract, pages, seen

windows = st.builds(WindowWithSinks, st.integers(64, 300), st.integers(0, 16))


class TestKeepAll(PagePolicyContract):
    policies = st.just(KeepAll())


class TestWindows(PagePolicyContract):
    policies = windows


class TestQuest(PagePolicyContract):
    policies = st.builds(QuestPolicy, st.integers(1, 30).map(lambda pages: 16 * pages), st.integers(0, 200))


@given(windows, INDICES)
def test_the_last_tokens_and_the_first_are_seen(policy: WindowWithSinks, index: int) -> None:
    kept = seen(policy, index)
    assert kept >= set(range(max(0, index + 1 - policy.window), index + 1))
    assert kept >= set(range(min(policy.sinks, index + 1)))
    assert len(kept) <= policy.window + 15 + policy.sinks
    first = int(policy.sights(np.array([index])).first[0])
    assert first % 16 == 0, "pages go whole"


@given(windows, INDICES)
def test_a_text_that_fits_is_seen_whole(policy: WindowWithSinks, index: int) -> None:
    whole = seen(policy, index) == set(range(index + 1))
    if index + 1 <= policy.window + policy.sinks and policy.sinks < 16:
        assert whole
    hides = any(seen(policy, t) != set(range(t + 1)) for t in (index, index - 15))
    # Sinks that fill the first page are seen as such while nothing lies between them and the window.
    assert policy.restricts(index + 1) == hides or (policy.sinks == 16 and not hides)


@settings(deadline=None)
@given(windows, st.integers(1, 3000))
def test_memory_is_constant(policy: WindowWithSinks, length: int) -> None:
    assert policy.kept_pages(length) <= -(-(policy.window + 15) // 16) + 2


def test_every_live_page_is_needed() -> None:
    """Dead are all that can be: a page that the next row does not read is among them."""
    policy = WindowWithSinks(100)
    for committed in range(900):
        held = set(range(committed // 16 + 1)) - set(range(*policy.dead_pages(committed)))
        assert held == pages(policy, committed)


def test_keep_all_keeps_all() -> None:
    policy = KeepAll()
    assert seen(policy, 700) == set(range(701))
    assert not policy.restricts(10**6)
    assert policy.dead_pages(10**6) == (0, 0)
    assert policy.kept_pages(33) == 3


def test_values_of_the_catalogue_make_policies() -> None:
    assert policy_of({keys.PAGE_POLICY: "keep_all"}) == KeepAll()
    window = {keys.PAGE_POLICY: "window_sinks", keys.WINDOW_TOKENS: 200}
    assert policy_of(window) == WindowWithSinks(200, 4)
    assert policy_of(window) != WindowWithSinks(201, 4)
    quest = {keys.PAGE_POLICY: "quest", keys.QUEST_TOKENS: 512}
    assert policy_of(quest, 9) == QuestPolicy(512, 9)
    with pytest.raises(ValueError, match="its length is missing"):
        policy_of(quest)
    with pytest.raises(ValueError, match="at least 64"):
        WindowWithSinks(63)
    with pytest.raises(ValueError, match="at most 16"):
        WindowWithSinks(64, 17)

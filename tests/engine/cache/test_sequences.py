"""Whatever comes, goes, forks and gives way: every sequence's pages hold its own text, and all pages come back."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from engine.cache.groups import residual
from engine.cache.groups.residual import ResidualPart
from engine.cache.groups.state import StatePart
from engine.cache.policies import WindowWithSinks
from engine.cache.prefix.radix import PrefixTree
from engine.cache.prefix.states import StateSnapshots
from engine.cache.sequences import SequenceCache
from engine.cache.stores.recent import recent_span
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.cache.types import StateRun
from engine.decoding.scheduling.plan import Limits
from tests.contracts.sequence_cache import Fault, SequenceCacheContract
from tests.engine.cache.sequences_support import Asked, Fuzz, House, prompt, run

# --- single cases ------------------------------------------------------------------------------------------------


@pytest.mark.always
def test_the_second_to_ask_computes_only_what_differs() -> None:
    house = House(40)
    house.add(Asked(0, 0, prompt((1, 70)), 4))
    run(house, 10)
    second = house.add(Asked(1, 0, prompt((1, 40), (0, 30)), 4))
    house.step()
    assert second.computed_rows == 30, "two pages are shared, and half of a third is copied"
    house.drain()


@pytest.mark.parametrize("drafting", [True, False])
def test_what_the_draft_has_read_of_a_found_beginning_is_known(drafting: bool) -> None:
    """On the device a part of a page too, and what came back from the host."""
    house = House(40, host=40)
    first = house.add(Asked(0, 0, prompt((1, 70)), 4, drafting=drafting))
    run(house, 2)
    for _ in range(2):
        second = house.admit(Asked(1, 0, prompt((1, 40), (0, 30)), 4))
        second.cache.open()
        second.cache.restore()
        assert (second.num_computed, second.cache.drafts.model) == (40, 40 if drafting else 0)
        house.draft.expect(second.pages, np.arange(second.cache.drafts.model), second.digest())
        second.cache.close()
    house.cancel(first)
    house.tree.evict(1 << 30)
    third = house.admit(Asked(2, 0, prompt((1, 70)), 4))
    third.cache.open()
    assert third.num_computed == 0
    third.cache.restore()
    assert (third.num_computed, third.cache.drafts.model) == (64, 64 if drafting else 0)
    house.draft.expect(third.pages, np.arange(third.cache.drafts.model), third.digest())
    third.cache.close()
    house.drain()


def test_answers_to_one_prompt_read_it_once_and_write_to_copies() -> None:
    house = House(40)
    first = house.add(Asked(0, 0, prompt((1, 40)), 20))
    others = [house.add(Asked(n, n, prompt((1, 40)), 20, fork_of=first)) for n in (1, 2, 3)]
    run(house, 2)
    assert [other.computed_rows for other in others] == [1, 1, 1]
    last_pages = {asked.pages[2] for asked in (first, *others)}
    assert len(last_pages) == 4, "each writes to a page of its own"
    assert len({asked.pages[1] for asked in (first, *others)}) == 1
    house.drain()


def test_a_fork_of_an_answer_that_came_back_from_the_host_locks_what_it_reads() -> None:
    """The first answer has its own pages then; what it gives to the tree at its end the other still reads."""
    house = House(40, host=40)
    first = house.add(Asked(0, 0, prompt((1, 40)), 12))
    house.scheduler.add(second := house.admit(Asked(1, 1, prompt((1, 40)), 60, fork_of=first)))
    house.scheduler.waiting.remove(second)
    run(house, 3)
    house.scheduler.preempt(first)
    house.check()
    assert first.cache.held is not None
    house.step()
    assert first.cache.held is None
    assert first.cache.shared == 0
    house.draft_tokens, house.accepts = 2, lambda draft_tokens: draft_tokens
    house.scheduler.waiting.append(second)
    house.drain()


def test_cancelling_what_is_swapped_out_gives_everything_back() -> None:
    house = House(40, host=40)
    asked = house.add(Asked(0, 0, prompt((1, 40)), 20))
    run(house, 4)
    house.scheduler.preempt(asked)
    assert asked.cache.held is not None
    house.cancel(asked)
    assert house.space.counts.handles == 0
    house.drain()


def test_pages_that_a_tier_lost_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(30, host=30)
    asked = house.add(Asked(0, 0, prompt((1, 100)), 20))
    run(house, 4)
    house.scheduler.preempt(asked)
    monkeypatch.setattr(house.tiers, "take", lambda held, pages: house.tiers.drop(held) or False)  # type: ignore[func-returns-value]
    house.drain()
    assert house.done == [asked]


def test_rows_that_choose_pages_are_found_by_nobody_even_by_themselves() -> None:
    """The same text, once read by dense rows, is not what a preempted answer of QUEST had computed."""
    house = House(60)
    question = prompt((1, 40))
    dense = house.add(Asked(0, 0, list(question), 40, alphabet=1))
    run(house, 60)
    assert house.done == [dense]
    sparse = house.add(Asked(1, 0, list(question), 60, QuestPolicy(16, 40), alphabet=1))
    run(house, 45)
    house.scheduler.preempt(sparse)
    house.step()
    assert sparse.num_computed > 40
    house.drain()


def test_a_reservation_of_the_whole_context_takes_what_a_window_keeps() -> None:
    house = House(40, limits=Limits(64, whole_context=True))
    house.add(Asked(0, 0, prompt((1, 30)), 1500, WindowWithSinks(64), namespace=None))
    house.step()
    assert house.pool.used_count <= 12
    house.add(Asked(1, 0, prompt((1, 30)), 100))
    house.drain()
    assert len(house.done) == 2
    assert not any(plan.preempted for plan in house.plans)


def test_a_window_that_reads_in_chunks_keeps_its_pages_from_newcomers() -> None:
    """Dead pages come back after each chunk, and the next one needs them."""
    house = House(28, limits=Limits(96))
    house.add(Asked(0, 0, prompt((1, 900)), 5, WindowWithSinks(256), namespace=None))
    run(house, 6)
    for i in range(1, 8):
        house.add(Asked(i, 0, [i % 2, *prompt((1, 40))], 5, namespace=None))
    house.drain()
    assert not any(plan.preempted for plan in house.plans)


def test_a_neighbour_is_waited_for_and_then_found() -> None:
    house = House(60, limits=Limits(32))
    first = house.add(Asked(0, 0, prompt((1, 150)), 4))
    second = house.add(Asked(1, 0, prompt((1, 140), (0, 20)), 4))
    third = house.add(Asked(2, 0, prompt((0, 20)), 4))
    house.step()
    house.step()
    assert second in house.scheduler.waiting, "the first reads what the second begins with"
    house.drain()
    assert second.computed_rows < 60
    assert third in house.done
    assert first in house.done


def test_the_longest_prefix_goes_first_and_nobody_starves() -> None:
    house = House(30)
    house.add(Asked(0, 0, prompt((1, 100)), 2))
    run(house, 4)
    stranger = Asked(1, 0, prompt((0, 200)), 2)
    house.add(stranger)
    served = []
    for i in range(2, 60):
        house.add(Asked(i, 0, prompt((1, 100), (0, i)), 40))
        plan = house.step()
        served += [asked.arrival for asked in plan.admitted]
    assert served[0] == 2, "what is cached is used before it is given up"
    assert 1 in served
    assert served.index(1) <= 10
    house.drain()


def test_preemption_and_admission_do_not_alternate_with_a_shared_beginning() -> None:
    house = House(24, host=30)
    for i in range(10):
        house.add(Asked(i, 0, prompt((1, 100), (0, 10 + i)), 60))
    house.drain()
    assert len(house.done) == 10
    assert sum(len(plan.preempted) for plan in house.plans) <= 20


def test_nobody_comes_and_goes_for_want_of_recent_pages() -> None:
    house = House(60, residual=96, recent_pages=14, limits=Limits(64))
    for i in range(5):
        house.add(Asked(i, 0, prompt((1, 150 + i)), 20, namespace=None))
    house.drain()
    assert sum(len(plan.preempted) for plan in house.plans) <= 5


# --- kinds -------------------------------------------------------------------------------------------------------


def nothing_locked(self: SequenceCache) -> None:
    self._share(self.manager.tree._root(0), 0)


root, keep = PrefixTree._root, StateSnapshots.keep


@pytest.mark.content
class TestPages(SequenceCacheContract):
    kind, tight = "pages", {}
    cases: ClassVar = {
        "fault": {
            "a missing copy": Fault(SequenceCache, "must_copy", lambda self: False),
            "a lock let go too early": Fault(SequenceCache, "_lock_no_more_than_shared", nothing_locked),
            "no namespaces": Fault(PrefixTree, "_root", lambda self, namespace: root(self, "all")),
        }
    }


@pytest.mark.content
class TestRecent(SequenceCacheContract):
    kind, tight = "recent", {"residual": 64, "recent_pages": 14}
    cases: ClassVar = {
        "fault": {
            "a missing copy": Fault(ResidualPart, "_own", lambda self, cache: None),
            "given up too early": Fault(residual, "recent_span", lambda at, *more: recent_span(at + 32, *more)),
        }
    }


def draft_moves_on(self: StatePart, cache: SequenceCache, drafts: int) -> tuple[StateRun, ...]:
    found = runs(self, cache, drafts)
    return (*found[:-1], found[-1]._replace(target=found[-1].source)) if drafts else found


runs = StatePart.runs


@pytest.mark.content
class TestStates(SequenceCacheContract):
    kind, tight = "states", {"states": 8}
    cases: ClassVar = {
        "fault": {
            "kept for another place": Fault(
                StateSnapshots, "keep", lambda self, name, keys, *more: keep(self, name, keys[:-1] or keys, *more)
            ),
            "moved on by a draft": Fault(StatePart, "runs", draft_moves_on),
        }
    }


@pytest.mark.content
@pytest.mark.parametrize(("kind", "seed"), [("recent", 2010), ("recent, windows, states", 7014)])
def test_histories_in_which_packed_pages_were_found_that_were_not_there(kind: str, seed: int) -> None:
    Fuzz(seed, kind).play(500)

"""Slots of layers with a sliding window: every row finds its window, whatever comes, goes, forks and gives way."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.groups.window import WindowGroup, WindowPart
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.sequences import SequenceCache
from engine.cache.slots import WindowSlots, first_seen
from engine.decoding.scheduling.plan import Limits
from tests.contracts.sequence_cache import Fault, SequenceCacheContract
from tests.engine.cache.sequences_support import Asked, House, prompt, run


def taken_as_filled(self: WindowPart, cache: SequenceCache, before: int) -> bool:
    self.slots.unfilled.clear()
    return filled(self, cache, before)


filled = WindowPart.filled


@pytest.mark.content
class TestWindows(SequenceCacheContract):
    kind, tight = "windows", {"window": 40, "slots": 8}
    cases: ClassVar = {
        "fault": {
            "given up too early": Fault(
                WindowSlots, "first", lambda self, tokens: first_seen(tokens + PAGE_SIZE, self.window)
            ),
            "a beginning whose window is gone": Fault(WindowSlots, "longest", lambda self, pages, tokens: tokens),
            "a slot that is not copied": Fault(WindowPart, "copied", lambda self, cache, at: None),
            "a page that comes back without its window": Fault(WindowPart, "filled", taken_as_filled),
        }
    }


# --- single cases ------------------------------------------------------------------------------------------------


@pytest.mark.always
def test_an_answer_holds_its_window_and_no_more() -> None:
    house = House(60, window=40, slots=30, limits=Limits(32))
    asked = house.add(Asked(0, 0, prompt((1, 200)), 100, namespace=None))
    for _ in range(100):
        house.step()
        assert house.group(WindowGroup).slots.pool.used_count <= pages_for(39) + 1 + (2 if asked.known == 200 else 0)
    house.drain()


def test_the_beginning_of_a_text_that_left_is_found_while_there_is_room() -> None:
    """With few slots what a long text has passed is gone, while its end, and so its next turn, stays."""
    for slots, spared in ((60, 72), (12, 0)):
        house = House(60, window=40, slots=slots)
        first = house.add(Asked(0, 0, prompt((1, 300)), 4))
        run(house, 12)
        assert house.done == [first]
        parts = house.add(Asked(1, 0, prompt((1, 72), (0, 30)), 4, alphabet=1))
        goes_on = house.add(Asked(2, 0, [*first.tokens, 0, 0, 0], 4))
        house.drain()
        assert parts.prompt_length + 3 - parts.computed_rows == spared
        assert goes_on.prompt_length + 3 - goes_on.computed_rows == 303 // PAGE_SIZE * PAGE_SIZE


def test_pages_that_come_back_from_the_host_bring_their_windows() -> None:
    house = House(40, host=80, window=40, slots=30)
    first = house.add(Asked(0, 0, prompt((1, 150)), 4))
    run(house, 8)
    assert house.done == [first]
    house.tree.evict(1 << 30)
    assert house.group(WindowGroup).slots.pool.used_count == 0
    again = house.add(Asked(1, 0, prompt((1, 150), (0, 5)), 4))
    house.step()
    assert again.computed_rows == 155 - 144
    house.drain()


def test_pages_that_went_to_the_host_without_their_windows_are_of_no_use() -> None:
    house = House(40, host=80, window=40, slots=30)
    first = house.add(Asked(0, 0, prompt((1, 150)), 4))
    run(house, 8)
    assert house.done == [first]
    house.group(WindowGroup).slots.make_room(29)
    house.tree.evict(1 << 30)
    again = house.add(Asked(1, 0, prompt((1, 150), (0, 5)), 4))
    house.step()
    assert again.computed_rows >= 64, "all of it is read again, chunk by chunk"
    house.drain()


# --- slots by themselves -----------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 100))
def test_the_longest_beginning_whose_window_is_there(there: list[bool], window: int) -> None:
    slots = WindowSlots(len(there) + 1, len(there) + 1, window)
    pages = list(range(1, len(there) + 1))
    for page, wanted in zip(pages, there, strict=True):
        if wanted:
            slots.hold(page, "somebody")
    covered = [
        count
        for count in range(1, len(pages) + 1)
        if all(there[token // PAGE_SIZE] for token in range(max(0, count * PAGE_SIZE + 1 - window), count * PAGE_SIZE))
    ]
    counts = range(1, len(pages) + 1)
    assert covered == [count for count in counts if slots.longest(pages, count * PAGE_SIZE) == count * PAGE_SIZE]
    for count in counts:
        assert slots.longest(pages, count * PAGE_SIZE) == PAGE_SIZE * max((n for n in covered if n <= count), default=0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 11), st.integers(0, 2)), max_size=120))
def test_any_order_of_calls_leaves_the_books_right(calls: list[tuple[int, int, int]]) -> None:
    """Pages are the tree's from the first time that it keeps them until it gives them up."""
    slots = WindowSlots(12, 7, 20)
    held: list[tuple[int, int, int]] = []
    tree: set[int] = set()
    for call, page, owner in calls:
        mine = [each for each in held if each[1:] == (page, owner)]
        if call == 0 and (slots.of_page[page] or not slots.lacks(1)):
            held.append((slots.hold(page, owner), page, owner))
        elif call == 1 and mine:
            slots.let_go([mine[0][0]], owner, passed=bool(owner))
            held.remove(mine[0])
        elif call == 2 and slots.of_page[page]:
            slots.keep([page])
            tree.add(page)
        elif call == 3:
            slots.drop([page])
            tree.discard(page)
        elif call == 4:
            most = slots.pool.total - len({slot for slot, *_ in held})
            assert slots.make_room(most), "all that is kept and not read gives way"
        slots.check()
        assert all(slots.of_page[page] == slot for slot, page, _ in held), "a slot that is read is gone"
        assert slots.kept <= len(tree)

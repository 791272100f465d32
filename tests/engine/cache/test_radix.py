"""The prefix tree: matching, splitting, locks, eviction and the tiers below; against a naive model of it."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.pool import PAGE_SIZE
from engine.cache.types import TREE, DraftKVLengths, Node, page_keys
from tests.engine.cache.tree_support import Library, Text, keys, tokens
from tests.kit.examples import examples


def test_a_text_is_found_as_far_as_it_agrees() -> None:
    library = Library()
    library.insert((1, 2, 3, 4))
    library.insert((1, 2, 5))
    assert library.found((1, 2, 3, 4, 9)) == 4
    assert library.found((1, 2, 5, 3)) == 3
    assert library.found((1, 7)) == 1
    assert library.found((7, 1)) == 0
    assert library.found((1, 2, 3, 4), "another") == 0
    assert library.tree.matched("", keys((1, 2, 5, 5))) == 3
    assert library.tree.matched("another", keys((1,))) == 0
    assert library.tree.pages == 5


def test_duplicates_are_given_back() -> None:
    library = Library()
    first = library.insert((1, 2))
    again = library.insert((1, 2, 3))
    assert again.pages[:2] == first.pages
    assert library.pool.used_count == 3


def test_a_split_keeps_locks_and_draft_flags() -> None:
    library = Library()
    node = library.insert((1, 2, 3, 4), drafted=2 * PAGE_SIZE, chat="a").node
    library.tree.lock(node)
    match = library.tree.match("", keys((1, 9)))
    library.check()
    assert (len(match.node.pages), match.node.locks, match.node.chat) == (1, 1, "a")
    assert (len(node.pages), node.locks) == (3, 1)
    assert (list(match.node.drafted), list(node.drafted)) == ([1], [1, 0, 0])
    assert match.drafted.model == PAGE_SIZE
    assert library.tree.match("", keys((1, 2, 3, 4))).drafted.model == 2 * PAGE_SIZE
    assert library.tree.evictable == 0
    library.tree.unlock(node)
    library.check()
    assert library.tree.evictable == 4


def test_drafted_pages_count_only_from_the_beginning_on() -> None:
    library = Library()
    library.insert((1, 2))
    owner, pages = library.write((1, 2, 3))
    library.tree.insert("", keys((1, 2, 3)), pages, drafted=DraftKVLengths(3 * PAGE_SIZE))
    library.pool.release_all(owner)
    # The first two are duplicates, whose draft part nobody wrote.
    assert library.tree.match("", keys((1, 2, 3))).drafted.model == 0


def test_the_page_that_begins_alike() -> None:
    library = Library()
    library.insert((1, 2, 3))
    library.insert((1, 4))
    text = [*tokens((1,)), *[2] * 5, 9, 9]
    match = library.tree.match("", keys((1,)), text[PAGE_SIZE:])
    library.check()
    assert match.partial is not None
    node, count = match.partial
    assert (library.content[node.pages[0]], count) == (("", (1, 2)), 5)
    assert library.tree.match("", keys((1,)), [9]).partial is None
    assert library.tree.match("", keys((1,)), []).partial is None
    # A whole page that differs may begin alike too.
    mixed = [*tokens((1,)), *[4] * 10, *[5] * 6]
    assert library.tree.match("", page_keys(mixed)).partial == (match_child(library, (1, 4)), 10)


def match_child(library: Library, text: Text) -> Node:
    return library.tree.match("", keys(text)).node


def test_eviction_takes_leaves_first_and_the_longest_unused_before_others() -> None:
    library = Library()
    library.insert((1, 2, 3))
    library.insert((1, 5))
    library.insert((7,))
    library.found((1, 2, 3))
    assert library.tree.evict(1) == 1
    library.check()
    assert library.found((1, 5)) == 1, "the leaf that was used longest ago is gone"
    assert library.tree.evict(2) == 2
    assert library.found((7,)) == 0
    assert library.tree.matched("", keys((1, 2, 3))) == 2, "a run loses its end first"
    library.check()
    assert library.tree.evict(100) == 2
    assert library.pool.used_count == 0


def test_what_is_locked_is_never_evicted() -> None:
    library = Library()
    node = library.insert((1, 2, 3)).node
    library.insert((1, 2, 3, 4))
    library.tree.lock(node)
    assert library.tree.evict(100) == 1
    assert library.tree.evict(1) == 0
    library.tree.unlock(node)
    library.check()
    assert library.tree.evict(100) == 3


def test_a_deep_tree_goes_without_recursion(request: pytest.FixtureRequest) -> None:
    """Every chunk of a prompt becomes a node of its own."""
    request.addfinalizer(partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    library = Library(1000, host=500)
    text: Text = ()
    for i in range(300):
        text = (*text, i)
        library.tree.insert("", keys(text), pages := library.pool.allocate(len(text), "one"))
        library.content.update({page: ("", text[: j + 1]) for j, page in enumerate(pages)})
        library.pool.release_all("one")
    assert sum(1 for _ in library.tree.nodes()) == 300
    assert library.tree.evict(300) == 300
    library.check()
    assert library.tier is not None
    library.tier.loses = True
    (root,) = library.tree.roots.values()
    (first,) = root.children.values()
    pages = library.pool.allocate(1, "one")
    assert not library.tree.restore(first, pages)
    library.pool.release_all("one")
    assert list(library.tree.nodes()) == []


# --- tiers -------------------------------------------------------------------------------------------------------


def restored(library: Library, text: Text) -> int:
    """Bring what a tier keeps of the text back; pages on the device then."""
    while True:
        match = library.tree.match("", keys(text))
        if not match.held:
            return len(match.pages)
        node = library.tree.trim(match.held[0], min(match.held_pages, len(match.held[0].keys)))
        library.check()
        pages = library.pool.allocate(len(node.keys), "back")
        library.tree.restore(node, pages)
        library.pool.release_all("back")
        library.check()


def test_evicted_pages_wait_in_the_tier_and_come_back() -> None:
    library = Library(host=10)
    library.insert((1, 2, 3, 4))
    library.tree.evict(3)
    library.check()
    assert library.found((1, 2, 3, 4)) == 1
    assert library.tree.matched("", keys((1, 2, 3, 4))) == 4
    match = library.tree.match("", keys((1, 2, 3, 9)))
    assert ([len(node.keys) for node in match.held], match.held_pages) == ([3], 2)
    assert match.partial is None
    assert restored(library, (1, 2, 3)) == 3
    assert library.found((1, 2, 3, 4)) == 3
    assert restored(library, (1, 2, 3, 4)) == 4
    assert library.tier is not None
    assert library.tier.used == 0


def test_what_was_read_again_replaces_what_the_tier_kept() -> None:
    library = Library(host=10)
    library.insert((1, 2, 3), drafted=3 * PAGE_SIZE)
    library.tree.evict(3)
    library.insert((1, 2), drafted=0)
    assert library.found((1, 2, 3)) == 2
    assert library.tree.match("", keys((1, 2))).drafted.model == 0, "the draft model has not read it again"
    assert library.tier is not None
    assert library.tier.used == 1


def test_a_tier_that_gives_up_takes_what_follows_along() -> None:
    library = Library(host=4)
    library.insert((1, 2))
    library.insert((1, 2, 3))
    library.tree.evict(3)
    library.insert((8, 8, 8))
    library.tree.evict(3)
    library.check()
    assert library.tree.matched("", keys((8, 8, 8))) == 3
    assert library.tree.matched("", keys((1, 2, 3))) in (0, 1)


def test_a_tier_without_room_lets_go_of_what_was_below() -> None:
    library = Library(host=3)
    library.insert((1, 2, 3, 4))
    library.insert((1, 2, 3, 4, 5))
    library.tree.evict(1)
    library.tree.evict(4)
    library.check()
    assert library.tree.matched("", keys((1, 2, 3, 4, 5))) == 0


def test_a_saved_text_is_adopted_where_the_tree_lacks_it() -> None:
    library = Library(host=10)
    library.insert((1, 2))
    library.adopt((1, 2, 3, 4))
    assert library.tree.matched("", keys((1, 2, 3, 4))) == 4
    library.adopt((1, 2, 3, 9))
    library.adopt((1, 2, 3))
    assert library.found((1, 2, 3, 9)) == 2
    assert restored(library, (1, 2, 3, 9)) == 4
    assert library.found((1, 2, 3, 9)) == 4


def test_what_is_lost_on_the_disk_is_forgotten() -> None:
    library = Library(host=10, loses=True)
    library.adopt((1, 2, 3))
    assert restored(library, (1, 2, 3)) == 0
    assert library.tree.matched("", keys((1, 2, 3))) == 0


# --- a naive model -----------------------------------------------------------------------------------------------


class Insert(NamedTuple):
    text: Text
    namespace: str
    hold: bool


class Look(NamedTuple):
    text: Text
    namespace: str


class Evict(NamedTuple):
    pages: int


class Release(NamedTuple):
    which: int


class Adopt(NamedTuple):
    text: Text


class Restore(NamedTuple):
    text: Text


Operation = Insert | Look | Evict | Release | Adopt | Restore

texts = st.lists(st.integers(1, 3), min_size=1, max_size=6).map(tuple)
namespaces = st.sampled_from(["", "", "other"])
inserts = st.builds(Insert, texts, namespaces, st.booleans())
looks = st.builds(Look, texts, namespaces)
anything = st.one_of(
    inserts,
    looks,
    st.builds(Evict, st.integers(1, 6)),
    st.builds(Release, st.integers(0, 50)),
    st.builds(Adopt, texts),
    st.builds(Restore, texts),
)


@given(st.lists(st.one_of(inserts, looks), max_size=30))
@examples(150)
def test_with_room_the_tree_is_the_set_of_all_beginnings(script: list[Insert | Look]) -> None:
    library, known = Library(500), set()
    for operation in script:
        text, namespace = operation.text, operation.namespace
        if isinstance(operation, Insert):
            library.insert(text, namespace)
            known |= {(namespace, text[: i + 1]) for i in range(len(text))}
        expected = next((n for n in range(len(text), 0, -1) if (namespace, text[:n]) in known), 0)
        assert library.tree.matched(namespace, keys(text)) == expected
        assert library.found(text, namespace) == expected
        assert library.tree.pages == len(known)
        assert {library.content[page] for page in library.pool.owned_by(TREE)} == known


def play(script: list[Operation], host: int | None, loses: bool) -> None:
    """What the tree gives is right, and what is locked stays; the books agree after each operation."""
    library = Library(60, host, loses)
    locks: list[tuple[Node, Text, str]] = []
    for operation in script:
        match operation:
            case Insert(text, namespace, hold):
                if library.pool.free_count < len(text):
                    library.tree.evict(len(text) - library.pool.free_count)
                if library.pool.free_count < len(text):
                    continue
                node = library.insert(text, namespace).node
                if hold:
                    library.tree.lock(node)
                    locks.append((node, text, namespace))
            case Look(text, namespace):
                library.found(text, namespace)
            case Evict(pages):
                before, free = library.tree.evictable, library.pool.free_count
                freed = library.tree.evict(pages)
                assert freed == min(pages, before)
                assert library.pool.free_count == free + freed
            case Release(which):
                if locks:
                    library.tree.unlock(locks.pop(which % len(locks))[0])
            case Adopt(text):
                if library.tier is not None:
                    library.adopt(text)
            case Restore(text):
                if library.pool.free_count >= 12:
                    restored(library, text)
        library.check()
        for _, text, namespace in locks:
            assert library.found(text, namespace) == len(text), "a locked page is gone"
    for node, _, _ in locks:
        library.tree.unlock(node)
    library.check()
    assert library.tree.evictable == library.tree.pages
    library.tree.evict(1000)
    assert library.pool.used_count == 0


@given(st.lists(anything, max_size=40), st.sampled_from([None, 0, 2, 5, 30]), st.booleans())
@examples(150)
def test_any_history_keeps_the_books_and_the_content(script: list[Operation], host: int | None, loses: bool) -> None:
    play(script, host, loses)


@pytest.mark.long
@pytest.mark.timeout(1200)
@given(st.lists(anything, min_size=80, max_size=100), st.sampled_from([None, 0, 2, 5, 30]), st.booleans())
@examples(1500)
def test_a_hundred_thousand_operations(script: list[Operation], host: int | None, loses: bool) -> None:
    play(script, host, loses)

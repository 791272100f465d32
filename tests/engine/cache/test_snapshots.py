"""Snapshots against a list of them that is searched by definition; what they hold adds up at every step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.cache.pool import PAGE_SIZE, OutOfPages, PagePool
from engine.cache.prefix.snapshots import Snapshot, Snapshots
from engine.cache.stores.recent import packed_until
from engine.cache.types import TREE, page_keys, tokens_of
from tests.kit.examples import examples

R = 64


def text(shift: int, length: int, turn: int = 1 << 30) -> list[int]:
    """Two texts of one shift are alike up to where one of them turns."""
    return [(i * 3 + shift + (i >= turn)) % 50 for i in range(length)]


def keep(kept: Snapshots, tokens: list[int], back: int = 0, name: str = "") -> int | None:
    """Keep what follows the first tokens of a text, in new pages; where it begins. None without room."""
    first = packed_until(len(tokens) - 1 - back, R)
    try:
        pages = kept.pool.allocate(-(-(len(tokens) - first) // PAGE_SIZE), "writer")
    except OutOfPages:
        return None
    kept.keep(name, page_keys(tokens[:first]), tokens[first:], pages)
    kept.pool.release(pages, "writer")
    return first


def by_definition(known: list[tuple[int, list[int]]], wanted: list[int], packed: int) -> int:
    """The longest n such that the rows after n tokens read nothing that is not packed or in one snapshot."""
    best = 0
    for first, tokens in known:
        for n in range(first + 1, min(len(tokens), len(wanted)) + 1):
            until = packed_until(n - 1, R)
            if tokens[:n] == wanted[:n] and first <= until <= packed:
                best = max(best, n)
    return best


texts = st.builds(text, st.integers(0, 1), st.integers(1, 200), st.one_of(st.just(1 << 30), st.integers(0, 200)))
operations = st.one_of(
    st.tuples(st.just("keep"), texts, st.sampled_from([0, 1, 16])),
    st.tuples(st.just("find"), texts, st.integers(0, 12)),
    st.tuples(st.just("room"), st.just([]), st.integers(0, 40)),
    st.tuples(st.just("page"), st.just([]), st.integers(0, 50)),
)


@given(st.lists(operations, max_size=30), st.sampled_from([20, 400]))
@examples(150)
def test_the_longest_is_found_whatever_came_and_went(script: list[tuple[str, list[int], int]], pages: int) -> None:
    kept = Snapshots(PagePool(pages), R)
    for what, tokens, number in script:
        match what:
            case "keep":
                keep(kept, tokens, number)
            case "room":
                assert kept.make_room(number) == (kept.pool.free_count >= number)
                assert kept.pool.free_count >= number or not len(kept)
            case "page":
                held = kept.pool.owned_by(TREE)
                if held:
                    kept.let_go(held[number % len(held)])
                    assert not kept.pool.refs(held[number % len(held)])
            case _:
                packed = PAGE_SIZE * (min(number * PAGE_SIZE, len(tokens)) // PAGE_SIZE)
                whole = [(each.first, _tokens(each)) for each in kept._all]
                found = kept.find("", page_keys(tokens), tokens, packed)
                assert (found.tokens if found else 0) == by_definition(whole, tokens, packed // 32 * 32)
                if found is not None:
                    assert found.packed == packed_until(found.tokens - 1, R)
                    assert len(found.pages) == -(-(found.tokens - found.packed) // PAGE_SIZE)
        kept.check()
        assert kept.evictable == kept.pages == kept.pool.used_count


def _tokens(each: Snapshot) -> list[int]:
    return [token for key in each.keys for token in tokens_of(key)] + each.tokens


def test_a_hit_ends_before_rows_that_read_packed_tokens_which_are_gone() -> None:
    kept, tokens = Snapshots(PagePool(100), R), text(0, 110)
    assert keep(kept, tokens, back=16) == 0
    found = kept.find("", page_keys(tokens), tokens, 0)
    assert found is not None
    assert (found.tokens, found.packed) == (95, 0), "the row after 96 tokens reads 32 packed ones"


def test_a_longer_text_takes_the_place_of_its_beginning() -> None:
    kept = Snapshots(PagePool(100), R)
    keep(kept, text(0, 100))
    keep(kept, text(0, 110))
    assert (len(kept), kept.pages) == (1, 5)
    keep(kept, text(0, 105))
    assert len(kept) == 1
    keep(kept, text(0, 110, turn=104))
    assert len(kept) == 2, "another text"
    keep(kept, text(0, 110), name="another kind")
    assert len(kept) == 3


def test_useless_ones_go_first_and_then_the_longest_unused() -> None:
    gone: set[str] = set()
    kept = Snapshots(PagePool(16), R, lambda name, keys: name not in gone)
    for name in "abc":
        keep(kept, text(0, 70), name=name)
    first = kept.find("a", page_keys(text(0, 71)), text(0, 71), 0)
    assert first is not None
    kept.touch(first.snapshot)
    gone.add("c")
    for left in ("ba", "a", ""):
        assert kept.make_room(kept.pool.free_count + 1)
        assert {each.namespace for each in kept._all} == set(left)
    assert not kept.make_room(16)


def test_pages_that_a_sequence_reads_are_no_room() -> None:
    kept = Snapshots(PagePool(10), R)
    keep(kept, text(0, 70))
    pages = kept.pool.owned_by(TREE)
    kept.pool.retain(pages[:2], "reader")
    assert (kept.pages, kept.evictable) == (5, 3)
    kept.let_go(pages[0])
    assert kept.pool.used_count == 2
    kept.check()

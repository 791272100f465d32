"""The arrays of a view and the messages made of them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from engine.loop.cache_view import (
    Holding,
    PagesSnapshot,
    PageView,
    TreeSnapshot,
    page_described,
    page_map,
    radix_tree,
    view,
)
from engine.loop.commands import Inspect
from engine.protocol import PAGE_STATES, PageDescribed, PageMap, PageOwner, TreeNode, decode_from_engine, encode
from tests.engine.loop.toy_engine import ToyEngine

ANNA, BEN = PageOwner(chat="a", id="r1"), PageOwner(chat="b", id="r2")


def shown(message: PageMap) -> tuple[list[str], list[int]]:
    """States and owners as a client reads them."""
    states = [PAGE_STATES[byte] for byte in zlib.decompress(message.states)]
    return states, np.frombuffer(zlib.decompress(message.owners), "<u2").tolist()


def reads(ids) -> str:
    return "".join(chr(97 + token) for token in ids)


def test_states_and_owners() -> None:
    refs = [0, 1, 2, 2, 1, 1, 0]
    held = [Holding(ANNA, [1, 2, 3]), Holding(BEN, [2, 3])]
    kept = [Holding(ANNA, [3], "locked"), Holding(PageOwner(chat="a", id=""), [4], "cached")]
    message = page_map(view(refs, held, kept, swapped=3, saved=1), {"r1": "one", "r2": "two", "": ""}.__getitem__)
    states, owners = shown(message)
    assert states == ["private", "shared", "locked", "cached", "private", "free"]
    assert [message.legend[owner - 1].id if owner else None for owner in owners] == [
        "one",
        "one",
        "one",
        "",
        None,
        None,
    ]
    assert message.legend[owners[3] - 1].chat == "a"
    assert (message.total, message.swapped, message.saved, message.page_tokens) == (6, 3, 1, 16)
    assert decode_from_engine(encode(message)) == message


def test_one_answer_that_reads_a_page_twice_does_not_share_it() -> None:
    states, _ = shown(page_map(view([0, 2], [Holding(ANNA, [1, 1])])))
    assert states == ["private"]


def test_a_large_map_is_small_on_the_wire() -> None:
    pages = 65_536
    held = [Holding(PageOwner(chat=f"c{i}", id=f"r{i}"), range(1 + i * 512, 1 + (i + 1) * 512)) for i in range(100)]
    refs = [0] + [1] * (100 * 512) + [0] * (pages - 100 * 512)
    seen = view(refs, held)
    assert (seen.states.dtype, seen.owners.dtype, len(seen.states)) == (np.uint8, np.uint16, pages)
    assert len(encode(page_map(seen))) < 20_000


def tree(now: float, *used: tuple[int, int, float]) -> TreeSnapshot:
    """Of nodes by id, parent and when they were used."""
    nodes = tuple(
        TreeNode(id=id, parent=parent, tokens=32, locks=id % 2, hits=id, idle_seconds=now - at, chat="c")
        for id, parent, at in used
    )
    return TreeSnapshot(nodes, {node.id: range(3) for node in nodes})


def test_the_tree_shows_what_was_used_last_with_all_above_it() -> None:
    seen = tree(10.0, (5, 4, 9.0), (4, -1, 9.0), (3, 2, 5.0), (2, -1, 8.0), (1, -1, 7.0))
    message = radix_tree(seen, reads, most=4)
    assert [found.id for found in message.nodes] == [4, 5, 2, 1]
    assert (message.total_nodes, message.total_tokens) == (5, 160)
    first = message.nodes[0]
    assert (first.parent, first.tokens, first.hits, first.idle_seconds, first.text) == (-1, 32, 4, 1.0, "abc")
    for at, found in enumerate(message.nodes):
        assert found.parent == -1 or found.parent in [before.id for before in message.nodes[:at]]


def test_a_node_without_its_parent_hangs_from_the_root() -> None:
    message = radix_tree(tree(1.0, (3, 77, 1.0)), reads)
    assert message.nodes[0].parent == -1


def test_a_page_is_described() -> None:
    described = PageDescribed(id="", page=4, state="shared", chats=["a", "b"], first=64)
    message = page_described("d", PageView(described, (0, 1, 2)), reads)
    assert (message.page, message.state, message.chats) == (4, "shared", ["a", "b"])
    assert (message.first, message.last, message.text) == (64, 66, "abc")


def looked(toy: ToyEngine, kind, page: int = 0):
    replies: list = []
    toy.engine.submit(Inspect(kind, replies.append, page))
    toy.step()
    return replies[0]


def test_the_engine_shows_its_pages() -> None:
    toy = ToyEngine(page_reservation="on_demand")
    version = toy.engine.cache_version()
    toy.add("r1", [1, 2, 3] * 12)
    toy.step()
    assert toy.engine.cache_version() != version
    seen = looked(toy, "pages")
    assert isinstance(seen, PagesSnapshot)
    states, owners = shown(page_map(seen))
    mine = [place for place, owner in enumerate(owners) if owner]
    assert len(mine) == 1, "full pages are the tree's by now"
    assert {states[place] for place in mine} == {"private"}
    assert states.count("locked") == 2
    assert {owner.id for owner in seen.legend} == {"r1"}
    second = looked(toy, "page", states.index("locked") + 2)
    assert isinstance(second, PageView)
    assert (second.described.state, second.described.first) == ("locked", 16)
    assert second.tokens == (*[1, 2, 3] * 12,)[16:32]
    assert looked(toy, "page", toy.stepper.cache.pool.total + 1) is None
    assert looked(toy, "page", 0) is None


@pytest.mark.parametrize("kind", ["pages", "tree", "page"])
def test_without_a_model_there_is_nothing_to_see(kind) -> None:
    toy = ToyEngine()
    toy.engine._stepper = None
    replies: list = []
    toy.engine.submit(Inspect(kind, replies.append, 1))
    toy.engine.step()
    assert replies == [None]

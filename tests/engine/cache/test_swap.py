"""What is swapped out comes back as it was; room is made by evicting what may go, the longest unused first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.cache.offload import swap
from engine.cache.offload.swap import Rate, Swapped, SwapSpace
from engine.cache.stores.store import DenseKVStore, LatentKVStore
from engine.cache.stores.transfer import host_cost, pages_per_stage
from tests.kit.examples import examples

PAGES = 12


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def arenas(seed: int = 0) -> list[Any]:
    """A target's and a draft's store, with something in them."""
    torch.manual_seed(seed)
    stores = [DenseKVStore([(2, 4)] * 2, PAGES, torch.float32), LatentKVStore(1, PAGES, 5, 2, torch.bfloat16)]
    for store in stores:
        for layer in range(store.layers):
            store.view(layer).k.normal_()
            store.view(layer).v.normal_()
    return stores


def content(stores: list[Any], page: int) -> bytes:
    return b"".join(store.export_pages([page]).numpy().tobytes() for store in stores)


PAGE = sum(store.page_bytes for store in arenas())


def test_pages_of_all_stores_come_back_under_other_numbers() -> None:
    stores, space = arenas(), SwapSpace(3 * PAGE)
    before = [content(stores, page) for page in (5, 2, 9)]
    handle = space.put(stores, [5, 2, 9], tokens=41, owner="answer")
    assert handle is not None
    assert (handle.pages, handle.tokens, handle.size) == (3, 41, 3 * PAGE)
    for store in stores:
        store.import_pages([5, 2, 9], store.export_pages([1, 1, 1]))
    space.get([handle], stores, [3, 4, 5])
    assert [content(stores, page) for page in (3, 4, 5)] == before
    assert space.counts[:4] == (0, 0, 0, 0)
    assert (space.counts.swapped_out, space.counts.swapped_in) == (3, 3)
    space.check()


def test_several_handles_come_back_at_once_in_their_order() -> None:
    stores, space = arenas(), SwapSpace(9 * PAGE)
    handles = [space.put(stores, pages, 16 * len(pages), "tree") for pages in ([1], [2, 3], [4])]
    before = [content(stores, page) for page in (4, 1, 2, 3)]
    space.get([handles[2], handles[0], handles[1]], stores, [8, 9, 10, 11])  # type: ignore[list-item]
    assert [content(stores, page) for page in (8, 9, 10, 11)] == before


def test_what_does_not_fit_is_refused_and_evicts_nothing() -> None:
    stores, gone = arenas(), []
    space = SwapSpace(4 * PAGE, on_evict=gone.append)
    kept = space.put(stores, [1, 2], 32, "answer")
    assert space.put(stores, [3], 16, "tree") is not None
    assert not space.fits(stores, 3)
    assert space.put(stores, [4, 5, 6], 48, "answer") is None
    assert gone == []
    assert space.counts.failed == 1
    assert space.fits(stores, 2)
    assert space.put(stores, [4, 5], 32, "answer") is not None
    assert len(gone) == 1
    assert kept is not None
    space.check()


def test_the_oldest_of_the_tree_goes_first_and_no_answer() -> None:
    stores, gone = arenas(), []
    space = SwapSpace(3 * PAGE, on_evict=gone.append)
    a, b, c = (space.put(stores, [page], 16, "tree") for page in (1, 2, 3))
    for page, left in ((4, [a]), (5, [a, b]), (6, [a, b, c])):
        assert space.put(stores, [page], 16, "answer") is not None
        assert gone == left
    assert space.put(stores, [7], 16, "answer") is None


def test_what_is_evicted_may_take_others_along() -> None:
    stores = arenas()
    space = SwapSpace(3 * PAGE)
    a, b, _ = (space.put(stores, [page], 16, "tree") for page in (1, 2, 3))
    assert a is not None
    assert b is not None
    space.on_evict = lambda handle: space.drop([b]) if handle is a else None
    assert space.put(stores, [4, 5], 32, "answer") is not None
    assert space.counts.handles == 2
    space.check()


def test_a_smaller_budget_evicts_and_leaves_answers() -> None:
    stores, gone = arenas(), []
    space = SwapSpace(4 * PAGE, on_evict=gone.append)
    answer, node = space.put(stores, [1, 2], 32, "answer"), space.put(stores, [3], 16, "tree")
    space.resize(0)
    assert gone == [node]
    assert answer is not None
    assert space.counts.size == answer.size
    space.check()
    space.get([answer], stores, [4, 5])


def test_handles_are_used_once_and_with_their_stores() -> None:
    stores, space = arenas(), SwapSpace(4 * PAGE)
    handle = space.put(stores, [1, 2], 32, "answer")
    assert handle is not None
    for wrong in (
        lambda: space.put(stores, [], 0, "answer"),
        lambda: space.get([handle], stores, [1]),
        lambda: space.get([handle], stores[:1], [1, 2]),
        lambda: space.get([handle, handle], stores, [1, 2, 3, 4]),
    ):
        with pytest.raises(ValueError):
            wrong()
    space.drop([handle])
    with pytest.raises(ValueError):
        space.drop([handle])
    space.check()


def test_host_memory_that_is_refused_is_a_put_that_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> torch.Tensor:
        raise RuntimeError("cannot pin so much")

    monkeypatch.setattr(swap, "host_buffer", refuse)
    stores, space = arenas(), SwapSpace(4 * PAGE)
    assert space.put(stores, [1], 16, "answer") is None
    assert "cannot pin so much" in caplog.text
    space.check()


def test_many_pages_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.cache.stores.transfer.STAGING_BYTES", 2 * arenas()[0].page_bytes)
    assert pages_per_stage(arenas()[0].page_bytes) == 2
    stores, space = arenas(), SwapSpace(9 * PAGE)
    handle = space.put(stores, [1, 2, 3, 4, 5], 80, "answer")
    assert handle is not None
    assert [len(piece) for piece in handle.blobs[0]] == [2, 2, 1]
    before = [content(stores, page) for page in range(1, 6)]
    space.get([handle], stores, [7, 8, 9, 10, 11])
    assert [content(stores, page) for page in range(7, 12)] == before


def test_pinned_memory_is_charged_as_it_is_handed_out() -> None:
    assert host_cost(3, 1000, False) == 3000
    assert host_cost(3, 1000, True) == 4096
    assert host_cost(64, 1 << 19, True) == 32 << 20
    assert host_cost(0, 1000, True) == 0


def test_bandwidth_follows_what_was_measured_last() -> None:
    rate = Rate()
    assert rate.per_second is None
    rate.add(1000, 0.0)
    assert rate.per_second is None
    for _ in range(30):
        rate.add(10_000, 1.0)
    assert rate.per_second == pytest.approx(10_000, rel=0.01)
    rate.add(10, 1e-6)  # too small to say much
    assert rate.per_second == pytest.approx(10_000, rel=0.01)
    for _ in range(10):
        rate.add(20_000, 1.0)
    assert rate.per_second == pytest.approx(20_000, rel=0.1)
    assert rate.total == 1000 + 300_000 + 10 + 200_000


def test_time_is_measured_around_the_copies() -> None:
    clock = Clock()
    stores = arenas()

    class Slow:
        """A store whose copies take a second out and two back."""

        page_bytes, device = stores[0].page_bytes, stores[0].device

        def export_pages(self, pages: Any, out: Any = None) -> Any:
            clock.now += 1
            return stores[0].export_pages(pages, out)

        def import_pages(self, pages: Any, data: Any) -> None:
            clock.now += 2
            stores[0].import_pages(pages, data)

    space = SwapSpace(4 * PAGE, clock)
    handle = space.put([Slow()], [1, 2], 32, "answer")
    assert handle is not None
    space.get([handle], [Slow()], [3, 4])
    assert space.out.per_second == 2 * Slow.page_bytes
    assert space.into.per_second == Slow.page_bytes


class AgainstANaiveModel(RuleBasedStateMachine):
    """A list of what is there, in the order of use, and a dictionary of what each page must read."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = arenas()
        self.space = SwapSpace(6 * PAGE, on_evict=self.evicted)
        self.model: list[Swapped] = []
        self.contents: dict[Swapped, list[bytes]] = {}
        self.expected: list[Swapped] = []
        self.budget = 6

    def evicted(self, handle: Swapped) -> None:
        assert handle is self.expected.pop(0), "another one was due"
        self.model.remove(handle)

    def expect_evictions(self, pages: int) -> None:
        left = sum(handle.pages for handle in self.model)
        for handle in self.model:
            if left + pages > self.budget and handle.owner == "tree":
                self.expected.append(handle)
                left -= handle.pages

    def pick(self, data: st.DataObject, at_most: int = 3) -> list[Swapped]:
        return data.draw(st.lists(st.sampled_from(self.model), min_size=1, max_size=at_most, unique=True))

    @rule(pages=st.lists(st.integers(0, PAGES - 1), min_size=1, max_size=4), owner=st.sampled_from(["answer", "tree"]))
    def put(self, pages: list[int], owner: Any) -> None:
        fixed = sum(handle.pages for handle in self.model if handle.owner == "answer")
        room = fixed + len(pages) <= self.budget
        assert self.space.fits(self.stores, len(pages)) == room
        if room:
            self.expect_evictions(len(pages))
        handle = self.space.put(self.stores, pages, 16 * len(pages), owner)
        assert (handle is not None) == room
        assert not self.expected
        if handle is not None:
            self.model.append(handle)
            self.contents[handle] = [content(self.stores, page) for page in pages]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        handles = self.pick(data)
        count = sum(handle.pages for handle in handles)
        pages = data.draw(st.permutations(range(PAGES)))[:count]
        if len(pages) < count:
            return
        self.space.get(handles, self.stores, pages)
        assert [content(self.stores, page) for page in pages] == [
            page for handle in handles for page in self.contents[handle]
        ]
        self.model = [handle for handle in self.model if handle not in handles]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        handles = self.pick(data)
        self.space.drop(handles)
        self.model = [handle for handle in self.model if handle not in handles]

    @rule(budget=st.integers(0, 9))
    def resize(self, budget: int) -> None:
        self.budget = budget
        self.expect_evictions(0)
        self.space.resize(budget * PAGE)
        assert not self.expected

    @invariant()
    def books_agree(self) -> None:
        self.space.check()
        assert list(self.space._held) == self.model
        assert self.space.counts.pages == sum(handle.pages for handle in self.model)
        assert self.space.counts.size == PAGE * self.space.counts.pages


TestAgainstANaiveModel = AgainstANaiveModel.TestCase
TestAgainstANaiveModel.settings = examples(40, stateful_step_count=25)

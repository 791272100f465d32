"""The ledger: all or nothing, references add up, nothing is lost, whatever the order of operations."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from engine.cache.pool import OutOfPages, PagePool
from tests.kit.examples import examples

PAGES = 24


def test_hands_out_the_lowest_pages_and_never_page_0() -> None:
    pool = PagePool(5)
    assert pool.allocate(4, "a") == [1, 2, 3, 4]
    assert (pool.total, pool.used_count, pool.free_count) == (4, 4, 0)


def test_allocation_is_all_or_nothing() -> None:
    pool = PagePool(5)
    pool.allocate(2, "a")
    with pytest.raises(OutOfPages, match="3 pages wanted, 2 free"):
        pool.allocate(3, "b")
    assert pool.free_count == 2
    assert pool.owners() == ["a"]
    pool.check()


def test_a_growing_owner_gets_the_page_after_its_newest() -> None:
    pool = PagePool(10)
    pool.allocate(2, "a")
    pool.allocate(2, "b")
    pool.release([1], "a")
    assert pool.allocate(1, "b") == [5]  # not the lowest free page, 1
    assert pool.allocate(1, "a") == [1]  # page 3, after its newest, is taken
    pool.check()


def test_a_shared_page_is_free_when_the_last_owner_lets_go() -> None:
    pool = PagePool(4)
    (page,) = pool.allocate(1, "a")
    pool.retain([page], "b")
    pool.release([page], "a")
    assert (pool.refs(page), pool.owned_by("a"), pool.owned_by("b")) == (1, [], [page])
    assert pool.free_count == 2
    pool.release([page], "b")
    assert (pool.refs(page), pool.free_count) == (0, 3)


def test_a_wrong_release_changes_nothing() -> None:
    pool = PagePool(6)
    mine = pool.allocate(2, "a")
    pool.allocate(1, "b")
    with pytest.raises(ValueError, match="does not hold page 3"):
        pool.release([*mine, 3], "a")
    assert sorted(pool.owned_by("a")) == mine
    with pytest.raises(ValueError, match="does not hold page 1"):
        pool.release([1, 1], "a")
    assert pool.refs(1) == 1
    pool.check()


@pytest.mark.parametrize("page", [0, 3, 99, -1])
def test_a_free_page_cannot_be_shared(page: int) -> None:
    pool = PagePool(5)
    pool.allocate(1, "a")
    with pytest.raises(ValueError, match="held by nobody"):
        pool.retain([1, page], "b")
    assert pool.refs(1) == 1
    pool.check()


def test_check_finds_a_lost_page() -> None:
    pool = PagePool(5)
    pool.allocate(2, "a")
    pool._refs[2] = 0  # as if a release had forgotten the owner
    with pytest.raises(AssertionError, match="do not add up"):
        pool.check()


class PoolMachine(RuleBasedStateMachine):
    """Owners come, share, give back and are aborted; a plain dictionary of counts is the model."""

    owners = Bundle("owners")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES)
        self.model: dict[int, list[int]] = {}
        self.names = 0

    @rule(target=owners, n=st.integers(0, PAGES // 2))
    def arrive(self, n: int) -> int:
        self.names += 1
        self.model[self.names] = []
        self._allocate(self.names, n)
        return self.names

    @rule(owner=owners, n=st.integers(0, 6))
    def grow(self, owner: int, n: int) -> None:
        self._allocate(owner, n)

    @rule(owner=owners, other=owners, data=st.data())
    def share(self, owner: int, other: int, data: st.DataObject) -> None:
        pages = self._some(owner, data)
        self.pool.retain(pages, other)
        self.model[other] += pages

    @rule(owner=owners, data=st.data())
    def give_back(self, owner: int, data: st.DataObject) -> None:
        pages = self._some(owner, data)
        self.pool.release(pages, owner)
        for page in pages:
            self.model[owner].remove(page)

    @rule(owner=owners, page=st.integers(0, PAGES))
    def give_back_what_is_not_held(self, owner: int, page: int) -> None:
        if page not in self.model[owner]:
            with pytest.raises(ValueError):
                self.pool.release([*self.model[owner], page], owner)

    @rule(owner=consumes(owners))
    def abort(self, owner: int) -> None:
        assert self.pool.release_all(owner) == len(self.model.pop(owner))

    @invariant()
    def adds_up(self) -> None:
        self.pool.check()
        held = [page for pages in self.model.values() for page in pages]
        assert [self.pool.refs(page) for page in range(PAGES)] == [held.count(page) for page in range(PAGES)]
        assert self.pool.used_count == len(set(held))
        assert self.pool.free_count + self.pool.used_count == PAGES - 1
        for owner, pages in self.model.items():
            assert sorted(self.pool.owned_by(owner)) == sorted(set(pages))

    def teardown(self) -> None:
        for owner in list(self.model):
            self.pool.release_all(owner)
        self.pool.check()
        assert (self.pool.used_count, self.pool.owners()) == (0, [])

    def _allocate(self, owner: int, n: int) -> None:
        free = {page for page in range(1, PAGES) if self.pool.refs(page) == 0}
        if n > len(free):
            with pytest.raises(OutOfPages):
                self.pool.allocate(n, owner)
            return
        pages = self.pool.allocate(n, owner)
        assert len(set(pages)) == n
        assert set(pages) <= free
        self.model[owner] += pages

    def _some(self, owner: int, data: st.DataObject) -> list[int]:
        held = sorted(self.model[owner])
        return data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []


def fuzz(histories: int, steps: int) -> None:
    run_state_machine_as_test(
        PoolMachine,
        settings=examples(histories, stateful_step_count=steps, suppress_health_check=list(HealthCheck)),
    )


def test_any_sequence_of_operations_adds_up() -> None:
    fuzz(20, steps=50)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_operations_add_up() -> None:
    fuzz(100, steps=100)

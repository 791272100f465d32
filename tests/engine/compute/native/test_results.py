"""Memory of large results, which the next ones of a step get again."""

from __future__ import annotations

import pytest
import torch

from engine.base.host_memory import RESULTS, MemoryPool, trim_heap
from engine.compute.native import results

PAGE = 1 << 16


def tensor(pool: MemoryPool, pages: float = 1) -> torch.Tensor:
    return pool.empty((2, int(pages * PAGE) // 8), torch.float32)


def sizes(pool: MemoryPool) -> list[float]:
    return sorted(len(buffer.memory) / PAGE for buffer in pool._buffers)


def test_memory_goes_to_the_next_tensor_once_nothing_is_in_it_any_more() -> None:
    pool = MemoryPool()
    first = tensor(pool)
    place, view = first.data_ptr(), first[1]
    del first
    second = tensor(pool)
    assert second.data_ptr() != place
    view.fill_(3)
    second.fill_(4)
    assert view.unique().tolist() == [3]
    del view
    assert tensor(pool).data_ptr() == place
    assert sizes(pool) == [1, 1]


@pytest.mark.parametrize(("pages", "again"), [(1, True), (2, True), (2.5, False)])
def test_memory_serves_what_needs_at_least_half_of_it(pages: float, again: bool) -> None:
    pool = MemoryPool()
    held = tensor(pool, pages)
    place = held.data_ptr()
    del held
    assert (tensor(pool).data_ptr() == place) == again


def test_what_nothing_wanted_for_long_goes_and_what_is_held_stays() -> None:
    pool = MemoryPool(unwanted=9)
    held, unwanted = tensor(pool, 4), tensor(pool, 8)
    held.fill_(5)
    del unwanted
    for _ in range(9):
        tensor(pool)
    tensor(pool, 16)
    assert sizes(pool) == [1, 4, 16]
    pool.clear()
    assert sizes(pool) == [4]
    assert held.unique().tolist() == [5]


def test_only_large_results_outside_tapes_are_looked_for() -> None:
    trim_heap()
    before = sizes(RESULTS)
    assert results.empty((results.LEAST // 4 - 1,), torch.float32).shape == (results.LEAST // 4 - 1,)
    assert results.empty((0, 3), torch.bfloat16).shape == (0, 3)
    assert sizes(RESULTS) == before
    large = results.empty((results.LEAST // 4,), torch.float32)
    assert sum(sizes(RESULTS)) - sum(before) == large.nbytes / PAGE
    del large
    trim_heap()
    assert sizes(RESULTS) == before

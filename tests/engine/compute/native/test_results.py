"""Memory of large results, which the next ones of a step get again."""

from __future__ import annotations

import pytest
import torch

from engine.base.host_memory import RESULTS, Rooms, trim_heap
from engine.compute.native import results

PAGE = 1 << 16


def tensor(rooms: Rooms, pages: float = 1) -> torch.Tensor:
    return rooms.empty((2, int(pages * PAGE) // 8), torch.float32)


def sizes(rooms: Rooms) -> list[float]:
    return sorted(len(room.memory) / PAGE for room in rooms._rooms)


def test_memory_goes_to_the_next_tensor_once_nothing_is_in_it_any_more() -> None:
    rooms = Rooms()
    first = tensor(rooms)
    place, view = first.data_ptr(), first[1]
    del first
    second = tensor(rooms)
    assert second.data_ptr() != place
    view.fill_(3)
    second.fill_(4)
    assert view.unique().tolist() == [3]
    del view
    assert tensor(rooms).data_ptr() == place
    assert rooms.bytes == 2 * PAGE


@pytest.mark.parametrize(("pages", "again"), [(1, True), (2, True), (2.5, False)])
def test_memory_serves_what_needs_at_least_half_of_it(pages: float, again: bool) -> None:
    rooms = Rooms()
    held = tensor(rooms, pages)
    place = held.data_ptr()
    del held
    assert (tensor(rooms).data_ptr() == place) == again


def test_what_nothing_wanted_for_long_goes_and_what_is_held_stays() -> None:
    rooms = Rooms(unwanted=9)
    held, unwanted = tensor(rooms, 4), tensor(rooms, 8)
    held.fill_(5)
    del unwanted
    for _ in range(9):
        tensor(rooms)
    tensor(rooms, 16)
    assert sizes(rooms) == [1, 4, 16]
    rooms.clear()
    assert sizes(rooms) == [4]
    assert held.unique().tolist() == [5]


def test_only_large_results_outside_tapes_are_looked_for() -> None:
    trim_heap()
    before = RESULTS.bytes
    assert results.empty((results.LEAST // 4 - 1,), torch.float32).shape == (results.LEAST // 4 - 1,)
    assert results.empty((0, 3), torch.bfloat16).shape == (0, 3)
    assert RESULTS.bytes == before
    large = results.empty((results.LEAST // 4,), torch.float32)
    assert RESULTS.bytes - before == large.nbytes
    del large
    trim_heap()
    assert RESULTS.bytes == before

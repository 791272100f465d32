"""Memory of large results, which the next ones of a step get again."""

from __future__ import annotations

import gc

import pytest
import torch

from engine.compute.native.results import LEAST, LONG, Results
from engine.compute.native.tape import Tape

NUMBERS = LEAST // 4


def large(results: Results, times: float = 1) -> torch.Tensor:
    return results.empty((2, int(times * NUMBERS) // 2), torch.float32)


def test_memory_goes_to_the_next_tensor_once_nothing_is_in_it_any_more() -> None:
    results = Results()
    first = large(results)
    place, view = first.data_ptr(), first[1]
    del first
    second = large(results)
    assert second.data_ptr() != place
    view.fill_(3)
    second.fill_(4)
    assert view.unique().tolist() == [3]
    del view
    assert large(results).data_ptr() == place


@pytest.mark.parametrize(("times", "again"), [(1, True), (1.9, True), (2.5, False)])
def test_memory_serves_what_needs_at_least_half_of_it(times: float, again: bool) -> None:
    results = Results()
    held = large(results, times)
    place = held.data_ptr()
    del held
    assert (large(results).data_ptr() == place) == again


def test_what_nothing_wanted_for_long_goes_and_what_is_held_stays() -> None:
    results = Results()
    held, unwanted = large(results, 4), large(results, 8)
    held.fill_(5)
    del unwanted
    for _ in range(LONG):
        large(results)
    large(results, 16)
    assert sorted(len(room.memory) // LEAST for room in results._rooms) == [1, 4, 16]
    results.clear()
    assert [len(room.memory) // LEAST for room in results._rooms] == [4]
    assert held.unique().tolist() == [5]


def test_a_tape_holds_memory_of_its_own() -> None:
    results = Results()
    tape = Tape.of(lambda: large(results).fill_(1).sum())
    assert not results._rooms
    gc.collect()
    other = large(results).fill_(2)
    tape.replay()
    assert tape.result.item() == NUMBERS
    assert other.unique().tolist() == [2]


def test_small_tensors_are_the_allocators() -> None:
    results = Results()
    assert results.empty((7,), torch.bfloat16).shape == (7,)
    assert not results._rooms

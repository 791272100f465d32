"""Mapped memory: where tensors lie in it, and that it goes with them."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from engine.base import host_memory
from engine.base.host_memory import HUGE_PAGE, SLAB_BYTES, Slabs, mapped


def test_tensors_of_a_slab_stand_side_by_side() -> None:
    slabs = Slabs()
    first, second = slabs.empty((3, 5), torch.float16), slabs.empty((1 << 20,), torch.int32)
    assert first.data_ptr() % HUGE_PAGE == 0
    assert second.data_ptr() == first.data_ptr() + 64
    second[:] = 7
    first[:] = 1
    assert first.shape == (3, 5)
    assert (second == 7).all()
    large = slabs.empty((SLAB_BYTES + 1,), torch.uint8)
    assert large.data_ptr() % HUGE_PAGE == 0
    large[-1] = 1
    assert slabs.empty((0, 4), torch.float32).shape == (0, 4)


def test_a_slab_goes_with_its_last_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def watched(size: int) -> object:
        memory = mapped(size)
        made.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(host_memory, "mapped", watched)
    slabs = Slabs()
    tensors = [slabs.empty((1000,), torch.float32) for _ in range(3)]
    view = tensors[1][10:20]
    assert len(made) == 1
    del tensors
    gc.collect()
    assert made[0]() is not None
    del view
    gc.collect()
    assert made[0]() is None
    assert slabs.empty((1,), torch.uint8).data_ptr() % HUGE_PAGE == 0
    assert len(made) == 2


def test_what_cannot_be_mapped_is_said() -> None:
    with pytest.raises(MemoryError, match="could not be mapped"):
        Slabs().empty((1 << 56,), torch.uint8)

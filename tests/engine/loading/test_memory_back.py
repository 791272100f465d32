"""Objects that a load froze are collected when their model is dropped, and are not looked at while it is loaded."""

from __future__ import annotations

import gc
import weakref

import pytest

from engine.loading.model import release_memory, spare_the_collector
from tests.kit import collector


class Ring:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


def test_what_a_load_froze_is_collected_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", collector.freeze)
    monkeypatch.setattr(gc, "unfreeze", collector.unfreeze)
    ring = Ring()
    gone = weakref.ref(ring)
    spare_the_collector()
    assert gc.get_freeze_count() > 0
    del ring
    gc.collect()
    assert gone() is not None, "a collection does not go through what is loaded"
    release_memory()
    assert gone() is None
    assert gc.get_freeze_count() == 0
    collector.freeze()

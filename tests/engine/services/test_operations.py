"""The table of operations, and the functions behind it."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from engine.base import stopping
from engine.library import hub
from engine.protocol.operations import OPERATIONS
from engine.services.operations import FUNCTIONS, function_of


def test_each_operation_of_the_engine_has_a_function() -> None:
    here = {name for name, operation in OPERATIONS.items() if operation.where == "engine"}
    assert here == set(FUNCTIONS)
    assert all(callable(function_of(OPERATIONS[name])) for name in here)


def test_a_hub_that_hangs_is_left_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, ended = threading.Event(), queue.SimpleQueue[str]()
    monkeypatch.setattr(hub, "_answer", lambda url, token: hangs.wait(60))
    monkeypatch.setattr(hub, "token_of_user", lambda: "")
    stop = stopping.Stop()

    def search() -> None:
        with stopping.stoppable(stop):
            try:
                hub.search(hub.Search("x"))
            except stopping.Stopped as stopped:
                ended.put(str(stopped))

    thread = threading.Thread(target=search)
    thread.start()
    time.sleep(0.05)
    stop.set()
    assert ended.get(timeout=10).startswith("It was stopped")
    thread.join(10)
    hangs.set()

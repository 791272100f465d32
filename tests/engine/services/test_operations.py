"""The table of operations, and the functions behind it."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

import pytest

from engine.base import installation, stopping
from engine.base.fetching.errors import FetchFailed
from engine.library import hub
from engine.protocol.operations import OPERATIONS, SHOW_REPOSITORY, ShowRepository
from engine.services.operations import FUNCTIONS, function_of, perform
from tests.hub_server import Hub, stock


def test_each_operation_of_the_engine_has_a_function() -> None:
    here = {name for name, operation in OPERATIONS.items() if operation.where == "engine"}
    by_a_process = {"mcp.add"}
    assert here | by_a_process == set(FUNCTIONS)
    assert all(callable(function_of(OPERATIONS[name])) for name in FUNCTIONS)


def test_each_record_can_be_read() -> None:
    for operation in OPERATIONS.values():
        assert operation._decoders, operation.name


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


@pytest.mark.slow
def test_in_a_gpu_pack_the_program_asks_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    hub_here = Hub()
    hub_here.repositories = stock()
    monkeypatch.setenv("HF_ENDPOINT", hub_here.address)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setattr(installation, "_pack", Path("/a pack"))
    monkeypatch.setattr(hub, "repository", None)  # of this process, which has no keyring
    found = perform(SHOW_REPOSITORY, ShowRepository(repository="some/model"))
    assert found.model.repository == "some/model"
    with pytest.raises(FetchFailed, match="has no model some/other"):
        perform(SHOW_REPOSITORY, ShowRepository(repository="some/other"))
    hub_here.close()

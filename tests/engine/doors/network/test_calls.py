"""Operations over a real websocket: events, an answer, an error, cancelled, and requests that make no sense."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from engine import protocol as p
from engine.base import stopping
from engine.protocol.base import Part
from engine.protocol.calls import Operation
from engine.protocol.operations import OPERATIONS
from engine.services.operations import FUNCTIONS, Context, OperationFailed
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import Client

ENDED = threading.Event()


class Count(Part, frozen=True):
    to: int
    fails: bool = False
    waits: bool = False


def count(context: Context, request: Count, emit: Callable[[int], object]) -> str:
    """Events 1, 2, … then the loaded model's name; or it fails, or waits until it is told to stop."""
    ENDED.clear()
    try:
        for number in range(1, request.to + 1):
            emit(number)
        if request.fails:
            raise OperationFailed("It cannot be counted.")
        if request.waits:
            stopping.current().wait(60)
            stopping.current().check()
        assert context.hub is not None
        return context.hub.loaded.card.name
    finally:
        ENDED.set()


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, "test.count", Operation("test.count", Count, str, int))
    monkeypatch.setitem(FUNCTIONS, "test.count", f"{__name__}:count")


def call(client: Client, request: Any, id: str = "c", operation: str = "test.count") -> None:
    client.send(p.Call(id=id, operation=operation, request=msgspec.Raw(msgspec.json.encode(request))))


def until_end(client: Client) -> list[Any]:
    """Decoded events, then the answer, or the error."""
    heard: list[Any] = []
    while True:
        match client.receive():
            case p.CallEvent(event=event):
                heard.append(msgspec.json.decode(event))
            case p.CallAnswer(answer=answer):
                return [*heard, msgspec.json.decode(answer)]
            case p.Error() as error:
                return [*heard, error]


def test_events_and_an_answer(client: Client) -> None:
    call(client, Count(to=3))
    assert until_end(client) == [1, 2, 3, "tiny"]


def test_more_events_than_may_wait(client: Client) -> None:
    call(client, Count(to=2000))
    time.sleep(0.2)  # nothing is read meanwhile
    assert until_end(client) == [*range(1, 2001), "tiny"]


def test_a_failure_is_the_answer_and_the_connection_stays(client: Client) -> None:
    call(client, Count(to=1, fails=True))
    event, error = until_end(client)
    assert (event, error.code, error.id, error.message) == (1, "failed", "c", "It cannot be counted.")
    call(client, Count(to=0))
    assert until_end(client) == ["tiny"]


def test_a_cancelled_call_ends(client: Client) -> None:
    call(client, Count(to=1, waits=True))
    assert isinstance(client.receive(), p.CallEvent)
    call(client, Count(to=0), id="c")
    assert until_end(client)[0].code == "duplicate_id"
    client.send(p.Cancel(id="c"))
    (error,) = until_end(client)
    assert (error.code, error.id) == ("cancelled", "c")
    client.send(p.Cancel(id="c"))  # after its end
    call(client, Count(to=0))
    assert until_end(client) == ["tiny"]


def test_it_ends_with_its_client(running: Running) -> None:
    with running.connect() as socket:
        client = Client(socket)
        call(client, Count(to=1, waits=True))
        assert isinstance(client.receive(), p.CallEvent)
    assert ENDED.wait(60)


@pytest.mark.parametrize(
    ("operation", "request_", "code", "says"),
    [
        ("test.dance", {}, "unknown_operation", "'test.dance' here"),
        ("models.resume", {"id": "x"}, "unknown_operation", "'models.resume' here"),
        ("mcp.add", {"name": "x", "command": "touch x"}, "unknown_operation", "'mcp.add' here"),
        ("test.count", {"to": "three"}, "malformed", "Expected `int`, got `str`"),
        ("test.count", {}, "malformed", "missing required field `to`"),
        ("test.count", [1], "malformed", "Expected `object`"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(client: Client, operation, request_, code, says) -> None:
    call(client, request_, operation=operation)
    (error,) = until_end(client)
    assert (error.code, error.id) == (code, "c")
    assert says in error.message


def test_what_suits_this_machine_is_judged_without_the_loaded_model(client: Client) -> None:
    call(client, {}, operation="models.recommended")
    assert until_end(client) == [{"type": "Recommended", "models": [], "stored": {"/models/tiny": {"verdict": "fits"}}}]

"""The port that the window opens to other programs, and what it is told of their requests."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from engine import protocol as p
from engine.protocol.calls import Operation
from engine.protocol.operations import LISTEN_FOR, WATCH_REQUESTS
from engine.protocol.serving import HttpRequests, ListenFor, WatchRequests
from engine.services.operations import OperationFailed, perform
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import TOKEN, Client

ASKED = {"messages": [{"role": "user", "content": "secret words"}], "max_tokens": 3}
MESSAGES, HEADERS = "/v1/chat/completions", {"Authorization": f"Bearer {TOKEN}"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def send(client: Client, operation: Operation[Any, Any, Any], request: Any, id: str = "c") -> None:
    client.send(p.Call(id=id, operation=operation.name, request=msgspec.Raw(msgspec.json.encode(request))))


def listen(client: Client, port: int) -> str | p.Error:
    """The address that is open then, or why none is."""
    send(client, LISTEN_FOR, ListenFor(port=port))
    match client.receive():
        case p.CallAnswer(answer=answer):
            return LISTEN_FOR.read_answer(answer).url
        case p.Error() as error:
            return error
        case other:
            raise AssertionError(other)


def told(client: Client, fits: Callable[[HttpRequests], bool]) -> HttpRequests:
    """The first event that fits."""
    while True:
        message = client.receive()
        assert isinstance(message, p.CallEvent), message
        if fits(found := WATCH_REQUESTS.read_event(message.event)):
            return found


def test_a_port_is_opened_for_other_programs_moved_and_closed(client: Client) -> None:
    first, second = free_port(), free_port()
    assert listen(client, first) == f"http://127.0.0.1:{first}"
    with httpx.Client(base_url=f"http://127.0.0.1:{first}", headers=HEADERS) as http:
        assert http.post(MESSAGES, json=ASKED).status_code == 200
        assert http.get("/v1/models", headers={"Host": "elsewhere:1"}).status_code == 421
        assert f"127.0.0.1:{first}" in http.get("/health", headers={"Host": "elsewhere:1"}).text
        assert listen(client, second) == f"http://127.0.0.1:{second}"
        with pytest.raises(httpx.ConnectError):  # the connection that was kept is closed with the port
            http.get("/health")
    assert httpx.get(f"http://127.0.0.1:{second}/health").status_code == 200
    assert listen(client, 0) == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{second}/health")


def test_a_port_that_is_taken_is_said_to_be_and_the_one_before_is_closed(client: Client) -> None:
    mine = free_port()
    listen(client, mine)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = listen(client, port)
    assert isinstance(refused, p.Error)
    assert refused.message.startswith(f"Port {port} is in use by another program")
    assert sys.platform != "linux" or f"process {os.getpid()}" in refused.message
    assert refused.message.endswith("Choose another port, or end that program.")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{mine}/health")
    assert listen(client, port) == f"http://127.0.0.1:{port}", "once it is free"


def test_an_answer_goes_on_to_its_end_when_the_port_is_closed(running: Running, client: Client) -> None:
    url = listen(client, free_port())
    running.engine.gate.clear()
    with httpx.stream(
        "POST", f"{url}{MESSAGES}", json={**ASKED, "stream": True}, headers=HEADERS, timeout=60
    ) as answer:
        assert listen(client, 0) == ""
        running.engine.gate.set()
        assert answer.read().endswith(b"data: [DONE]\n\n")


def test_requests_are_told_while_they_last_and_afterwards_without_texts(
    running: Running, client: Client, open_client: Callable[[Running], Client]
) -> None:
    url, watching = listen(client, free_port()), open_client(running)
    send(watching, WATCH_REQUESTS, WatchRequests())
    assert told(watching, lambda _: True) == HttpRequests()
    running.engine.gate.clear()
    with httpx.Client(base_url=str(url), headers=HEADERS, timeout=60) as http:
        with http.stream("POST", f"{MESSAGES}?of=mine", json={**ASKED, "stream": True}) as answer:
            busy = told(watching, lambda now: bool(now.last and now.last[0].model and now.last[0].status))
            assert (busy.total, busy.running, busy.connections) == (1, 1, 1)
            assert (busy.last[0].key, busy.last[0].status, busy.last[0].running) == ("session", 200, True)
            running.engine.gate.set()
            answer.read()
        done = told(watching, lambda now: not now.running)
        ended = done.last[0]
        assert (ended.path, ended.method, ended.client, ended.model) == (MESSAGES, "POST", "127.0.0.1", "tiny")
        assert ended.prompt_tokens == done.prompt_tokens > 0
        assert ended.generated_tokens == done.generated_tokens == 3
        assert http.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
        refused = told(watching, lambda now: now.total == 2 and not now.running)
        assert [(each.status, each.key) for each in refused.last] == [(401, ""), (200, "session")]
    assert told(watching, lambda now: now.connections == 0).last == refused.last
    assert "secret" not in str(refused)


def test_at_most_a_hundred_requests_are_told(running: Running, http: httpx.Client) -> None:
    for _ in range(102):
        http.get("/health")
    while (now := running.server.serving.visits.now()).running:  # the last one ends after its response
        time.sleep(0.01)
    assert (now.total, now.running, len(now.last)) == (102, 0, 100)


def test_watching_ends_when_it_is_told_to(client: Client) -> None:
    send(client, WATCH_REQUESTS, WatchRequests(), "watch")
    told(client, lambda _: True)
    client.send(p.Cancel(id="watch"))
    end = client.receive()
    assert isinstance(end, p.Error)
    assert end.code == "cancelled"


@pytest.mark.parametrize(("row", "request_"), [(LISTEN_FOR, ListenFor()), (WATCH_REQUESTS, WatchRequests())])
def test_a_process_without_a_server_says_so(row: Any, request_: Any) -> None:
    with pytest.raises(OperationFailed, match="kvasir serve"):
        perform(row, request_)

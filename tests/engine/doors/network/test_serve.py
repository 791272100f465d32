"""The connections under the server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from engine import protocol as p
from engine.doors import threads
from engine.doors.serve import Server, open_socket
from tests.engine.doors.network.conftest import Running
from tests.engine.doors.network.fake import FakeEngine, FakeProbes
from tests.kit.servers import TOKEN, Client


def connected(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.server.port), timeout=300)


def health(running: Running) -> bytes:
    return b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % running.server.port


def read_reply(client: socket.socket) -> None:
    assert client.recv(12) == b"HTTP/1.1 200"
    while not client.recv(4096).endswith(b"}"):
        pass


def closed(client: socket.socket) -> bool:
    try:
        while client.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_small_replies_are_sent_at_once(running: Running) -> None:
    """Without TCP_NODELAY each reply on a kept connection waits for the acknowledgement of the one before."""
    with connected(running) as client:
        client.sendall(health(running))
        read_reply(client)
        (connection,) = running.server._uvicorn.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.fixture
def hasty(home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr("engine.doors.connections.HEAD_SECONDS", 0.3)
    monkeypatch.setattr("engine.doors.serve.IDLE_SECONDS", 1)
    made = Running()
    yield made
    made.stop()


def test_a_connection_without_a_request_is_closed(hasty: Running) -> None:
    with connected(hasty) as silent, connected(hasty) as begun, connected(hasty) as kept, connected(hasty) as again:
        begun.sendall(b"GET /health HTTP/1.1\r\nHost:")
        kept.sendall(health(hasty))
        read_reply(kept)
        again.sendall(health(hasty))
        read_reply(again)
        again.sendall(b"GET /health")
        for client in (silent, begun, kept, again):
            assert closed(client)


def cut_while_sending(client: socket.socket, data: bytes) -> bool:
    """Whether the connection ends although a little more comes again and again."""
    client.settimeout(0.05)
    for _ in range(400):
        try:
            client.sendall(data)
            if client.recv(4096) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def test_a_byte_now_and_then_is_no_request(hasty: Running) -> None:
    with connected(hasty) as client:
        client.sendall(b"GET /health HTTP/1.1\r\n")
        assert cut_while_sending(client, b"X-More: 1\r\n")


def test_a_refused_body_is_not_read_for_ever(hasty: Running) -> None:
    with connected(hasty) as client:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 9999999\r\n\r\n"
        client.sendall(head % hasty.server.port)
        assert client.recv(12) == b"HTTP/1.1 401"
        assert cut_while_sending(client, b"x" * 10)


def test_answers_and_websockets_outlive_the_patience(hasty: Running) -> None:
    hasty.engine.gate.clear()
    body = b'{"prompt": "abc"}'
    with connected(hasty) as client, hasty.connect() as websocket:
        greeted = Client(websocket)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{hasty.server.port}\r\nAuthorization: Bearer {TOKEN}"
        client.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        with connected(hasty) as silent:
            assert closed(silent), "the patience is over"
        with connected(hasty) as silent:
            assert closed(silent)
        hasty.engine.gate.set()
        assert client.recv(12) == b"HTTP/1.1 200"
        greeted.send(p.CountTokens(id="c", prompt="abc"))
        assert greeted.until(p.Counted).id == "c"


def test_a_body_that_stays_away_is_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.doors.http.body.BODY_SECONDS", 0.2)
    with connected(running) as client:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{running.server.port}\r\nAuthorization: Bearer {TOKEN}"
        )
        client.sendall(f"{head}\r\nContent-Length: 100\r\n\r\n".encode() + b'{"prompt"')
        reply = b""
        while not reply.endswith(b"}}"):
            reply += client.recv(4096)
        assert reply.startswith(b"HTTP/1.1 408")
        assert b"body_timeout" in reply
        assert closed(client), "the rest of the body is not waited for"


def test_a_thread_that_cannot_be_had_is_told_at_the_start(
    home: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that dies while it begins says nothing: whoever waited for its work would wait for ever."""
    monkeypatch.setattr(threads, "START_SECONDS", 0.2)
    monkeypatch.setattr("concurrent.futures.thread._worker", lambda *arguments: None)
    server = Server(open_socket("127.0.0.1", 0), TOKEN, lambda emit: FakeEngine(emit), FakeProbes())
    assert server.run() == 1
    assert "fewer than the" in server.failure
    server.listener.close()

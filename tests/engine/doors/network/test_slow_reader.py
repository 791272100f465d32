"""A client that asks for a stream and does not read it."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from engine.doors.http import service
from engine.services.answers.stream import Stream
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import TOKEN

FLOOD = 20_000
"""Tokens of 1 KB, more than the system keeps for a connection."""


def request(running: Running, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{running.server.port}\r\nAuthorization: Bearer {TOKEN}"
    return f"{head}\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def text_of(events: str) -> str:
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


def read_all(client: socket.socket) -> bytes:
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_the_others_finish_and_what_waits_is_joined(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[Stream] = []

    class Watched(Stream):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            streams.append(self)

    monkeypatch.setattr(service, "Stream", Watched)
    body = {"prompt": "abc", "stream": True}
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", running.server.port))
        slow.settimeout(30)
        running.engine.flood = FLOOD
        slow.sendall(request(running, body))
        begun = b""
        while b"data: {" not in begun:  # then nothing more for a while
            begun += slow.recv(1)
        running.engine.flood = 0
        with ThreadPoolExecutor(4) as pool, httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            url = f"{running.url}/v1/completions"
            answers = list(pool.map(lambda _: http.post(url, json=body, timeout=60).text, range(8)))
        (text,) = {text_of(answer) for answer in answers}
        assert sorted(text) == ["a", "b", "c"]
        assert all(answer.endswith("data: [DONE]\n\n") for answer in answers)
        # The engine is done with the answer, though hardly any of it was read: at most one text waits, and the end.
        assert streams[0]._left == 0
        assert len(streams[0]._outbox) <= 3
        events = begun + read_all(slow)
    assert events.count(b"data: {") < FLOOD / 2
    parts = text_of("\n".join(line for line in events.decode().split("\r\n"))).split(".")
    assert [int(part) for part in parts[:FLOOD]] == list(range(FLOOD))

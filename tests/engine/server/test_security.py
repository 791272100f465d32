from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from websockets.exceptions import InvalidStatus

from engine import protocol as p
from engine.server.security import Gate, bearer, token_matches
from tests.engine.server.conftest import TOKEN, Client, Running


def refused(gate: Gate, **headers: str) -> str:
    refusal = gate.refuses(Headers(headers))
    return refusal.code if refusal is not None else ""


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost:80", "[::1]:80", "LOCALHOST:80"])
def test_own_hosts(host: str) -> None:
    assert refused(Gate(80), host=host) == ""
    assert refused(Gate(80), host=host, origin=f"http://{host}") == ""


@pytest.mark.parametrize(
    "host",
    ["evil.example:80", "127.0.0.1", "127.0.0.1:81", "", "localhost.evil.example:80", "localhost:80@evil.example:80",
     "127.0.0.1:80/x", "[::1", "192.168.0.5:80", "127.0.0.1:port"],
)  # fmt: skip
def test_foreign_hosts(host: str) -> None:
    assert refused(Gate(80), host=host) == "wrong_host"
    assert refused(Gate(80)) == "wrong_host"


@pytest.mark.parametrize(
    "origin",
    ["null", "", "https://127.0.0.1:80", "http://evil.example:80", "http://localhost:81", "file://", "http://["],
)
def test_foreign_origins(origin: str) -> None:
    assert refused(Gate(80), host="127.0.0.1:80", origin=origin) == "foreign_origin"


def test_beyond_the_loopback_addresses_count_but_names_do_not() -> None:
    gate = Gate(80, open_host=True)
    assert refused(gate, host="192.168.0.5:80") == ""
    assert refused(gate, host="evil.example:80") == "wrong_host"


def test_tokens() -> None:
    assert token_matches("secret", "secret")
    assert not token_matches("secre", "secret")
    assert not token_matches("", "")
    assert not token_matches("é", "secret")
    assert bearer("Bearer abc") == "abc"
    assert bearer("bearer  abc ") == "abc"
    assert bearer("Basic abc") == ""


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}], ids=str
)
def test_web_pages_get_no_websocket(running: Running, headers: dict[str, str]) -> None:
    with pytest.raises((InvalidStatus, Exception)) as refusal, running.connect(additional_headers=headers):
        pytest.fail("a foreign page was let in")
    assert isinstance(refusal.value, InvalidStatus)
    assert refusal.value.response.status_code in (400, 403)


def test_own_origin_is_let_in(running: Running) -> None:
    with running.connect(additional_headers={"Origin": running.url}) as socket:
        assert isinstance(Client(socket).welcome, p.Welcome)


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models"])
def test_web_pages_get_no_http(running: Running, path: str) -> None:
    with httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        assert http.get(path).status_code == 200
        assert http.get(path, headers={"Origin": "http://evil.example"}).status_code == 403
        rebound = http.get(path, headers={"Host": f"evil.example:{running.server.port}"})
        assert rebound.status_code == 421
        assert "answers only to" in rebound.json()["error"]["message"]


@pytest.mark.parametrize("authorization", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}])
def test_http_wants_the_token(running: Running, authorization: dict[str, Any]) -> None:
    with httpx.Client(base_url=running.url, headers=authorization) as http:
        assert http.get("/health").status_code == 200
        assert http.get("/metrics").status_code == 401
        assert http.get("/v1/models").status_code == 401
        assert http.post("/v1/chat/completions", json={"messages": []}).status_code == 401
    assert running.engine.seen == []


def test_large_bodies_are_refused(running: Running) -> None:
    def endless() -> Any:
        for _ in range(40):
            yield b"x" * (1 << 20)

    with httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300) as http:
        assert http.post("/v1/completions", content=b"x" * (33 << 20)).status_code == 413
        assert http.post("/v1/completions", content=endless()).json()["error"]["code"] == "too_large"

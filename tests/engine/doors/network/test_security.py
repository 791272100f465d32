from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from websockets.exceptions import InvalidStatus

from engine import protocol as p
from engine.doors.http.openai.types import OpenAIChat
from engine.doors.security import Allowed, Gate, bearer, token_matches
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import TOKEN, Client


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


PAGES = Allowed(origins=("https://chat.example", "vscode-webview://*", "http://localhost:*"))


@pytest.mark.parametrize("origin", ["https://chat.example", "vscode-webview://1a2b", "http://localhost:3000"])
def test_origins_that_are_allowed(origin: str) -> None:
    gate = Gate(80, allowed=PAGES)
    headers = Headers({"host": "127.0.0.1:80", "origin": origin})
    assert gate.refuses(headers) is None
    assert gate.cors(headers)["access-control-allow-origin"] == origin
    assert Gate(80).cors(headers) == {}
    assert refused(Gate(80, allowed=Allowed(origins=["*"])), host="127.0.0.1:80", origin=origin) == ""


@pytest.mark.parametrize(
    "origin",
    ["http://chat.example", "https://chat.example:81", "https://chat.example.evil", "https://evil/https://chat.example",
     "http://localhost.evil:3000", "http://evil/localhost:3", "null", "https://chatxexample"],
)  # fmt: skip
def test_origins_that_are_not(origin: str) -> None:
    gate = Gate(80, allowed=PAGES)
    assert refused(gate, host="127.0.0.1:80", origin=origin) == "foreign_origin"
    assert gate.cors(Headers({"origin": origin})) == {}


def test_hosts_that_are_allowed_by_name() -> None:
    gate = Gate(80, allowed=Allowed(hosts=["host.docker.internal", "nas:8642"]))
    for host in (
        "host.docker.internal",
        "host.docker.internal:80",
        "HOST.docker.internal:9",
        "nas:8642",
        "localhost:80",
    ):
        assert refused(gate, host=host) == "", host
    for host in ("nas", "nas:80", "host.docker.internal.evil:80", "host.docker.internal:x", "evil:80", ""):
        assert refused(gate, host=host) == "wrong_host", host
    # A page of that host is a stranger still.
    assert refused(gate, host="nas:8642", origin="http://nas:8642") == "foreign_origin"


def test_an_allowed_page_gets_answers_that_it_may_read(home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Running(allowed=PAGES)
    page = {"Origin": "https://chat.example"}
    try:
        with httpx.Client(base_url=made.url, headers=page) as http:
            asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-own"}
            preflight = http.options("/v1/chat/completions", headers=asks)
            assert (preflight.status_code, preflight.content) == (200, b"")
            assert preflight.headers["access-control-allow-headers"] == "authorization,x-own"
            assert "POST" in preflight.headers["access-control-allow-methods"]
            stranger = http.get("/v1/models")
            known = http.get("/v1/models", headers={"X-Api-Key": TOKEN})
            assert (stranger.status_code, known.status_code) == (401, 200)
            monkeypatch.setattr(OpenAIChat, "sampling", lambda self: 1 / 0)
            body = {"messages": [{"role": "user", "content": "a"}]}
            failed = http.post("/v1/chat/completions", json=body, headers={"X-Api-Key": TOKEN})
            assert (failed.status_code, failed.headers["connection"]) == (500, "close")
            for answer in (preflight, stranger, known, failed):
                assert answer.headers["access-control-allow-origin"] == "https://chat.example"
                assert answer.headers["vary"] == "origin"
            foreign = http.options("/v1/models", headers={**asks, "Origin": "https://evil.example"})
            assert (foreign.status_code, "access-control-allow-origin" in foreign.headers) == (403, False)
        with made.connect(additional_headers=page) as socket:
            assert isinstance(Client(socket).welcome, p.Welcome)
    finally:
        made.stop()


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


@pytest.mark.parametrize("path", ["/health", "/metrics", "/openapi.json", "/v1/models"])
def test_web_pages_get_no_http(running: Running, path: str) -> None:
    with running.http() as http:
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
        refusal = http.get("/v1/models")
        assert (refusal.status_code, refusal.headers["www-authenticate"]) == (401, "Bearer")
        assert http.get("/v1/models", headers={"api-key": TOKEN}).status_code == 200
        assert http.post("/v1/chat/completions", json={"messages": []}).status_code == 401
    assert running.engine.seen == []


def test_large_bodies_are_refused(running: Running) -> None:
    def endless() -> Any:
        for _ in range(40):
            yield b"x" * (1 << 20)

    with running.http() as http:
        assert http.post("/v1/completions", content=b"x" * (33 << 20)).status_code == 413
        assert http.post("/v1/completions", content=endless()).json()["error"]["code"] == "too_large"

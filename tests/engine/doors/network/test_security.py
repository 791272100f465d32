from __future__ import annotations

import http.client
import re

import httpx
import pytest
from starlette.datastructures import Headers
from websockets.exceptions import InvalidStatus

from engine import protocol as p
from engine.doors.http import body as bodies
from engine.doors.http.openai.types import OpenAIChat
from engine.doors.security import Allowed, Gate, bearer, token_matches
from tests.engine.doors.network.conftest import Running, is_error
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


FOREIGN_ORIGINS = (
    "null", "", "https://127.0.0.1:80", "http://evil.example:80", "http://localhost:81", "file://", "http://["
)  # fmt: skip


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
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


def asked(running: Running, *methods: str) -> list[tuple[str, str]]:
    """Each of these methods, or any, of each route that is served, with a path for it."""
    return [
        (method, re.sub(r"{\w+(:path)?}", "x", route.path))
        for route in running.routes
        for method in sorted(route.methods or ())
        if not methods or method in methods
    ]


PAGES_OF_OTHERS = [
    *(({"Origin": origin}, 403) for origin in ("http://evil.example", *FOREIGN_ORIGINS)),
    *(({"Host": f"{host}:{{port}}"}, 421) for host in ("evil.example", "192.168.0.5", "127.0.0.1.evil.example")),
    ({"Host": "127.0.0.1"}, 421),
    ({"Host": "evil.example", "Origin": "http://127.0.0.1:{port}", "X-Forwarded-Host": "127.0.0.1:{port}"}, 421),
]


@pytest.mark.parametrize(("headers", "status"), PAGES_OF_OTHERS, ids=str)
def test_web_pages_get_no_http(refusing: Running, headers: dict[str, str], status: int) -> None:
    """With the token even, and by a preflight: whatever is served."""
    told = {name: value.format(port=refusing.server.port) for name, value in headers.items()}
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with refusing.http() as http:
        for method, path in asked(refusing):
            answer = http.request(method, path, headers=told)
            assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (status, False), path
            assert method == "HEAD" or answer.json()["error"]["message"]
        assert {http.options(path, headers=told | preflight).status_code for _, path in asked(refusing)} == {status}
    assert refusing.engine.seen == []


STRANGERS: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": "Bearer"},
    {"x-api-key": "", "api-key": "wrong"},
    {"x-api-key": f"Bearer {TOKEN}"},
    {"Cookie": f"token={TOKEN}; api-key={TOKEN}"},
    *({"Content-Type": kind} for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")),
]  # the last ones are what a page can send without a preflight


@pytest.mark.parametrize("headers", STRANGERS, ids=str)
def test_http_wants_the_token(refusing: Running, headers: dict[str, str]) -> None:
    body = b'{"messages": [{"role": "user", "content": "a"}], "prompt": "a", "input": "a", "max_tokens": 1}'
    tried = 0
    with httpx.Client(base_url=refusing.url, headers=headers, params={"key": TOKEN, "token": TOKEN}) as http:
        for method, path in asked(refusing):
            answer = http.request(method, path, content=body)
            if path not in ("/", "/api/version", "/health", "/ping", "/version"):
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
                assert method == "HEAD" or is_error(path, answer.json()), path
                tried += 1
    assert tried > 40
    assert refusing.engine.seen == []


NO_BODIES = [
    *(b"", b"null", b"[]", b"1", b'"a"', b"{", b"{]", b"\xff", b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'{"a": 1e400}'),
    *(before + b"[" * 100_000 for before in (b"", b'{"a": ', b'{"messages": ', b'{"input": ')),
    b'{"a":' * 100_000,
    '{"a": 1}'.encode("utf-16"),
]


@pytest.mark.parametrize("body", NO_BODIES, ids=lambda body: repr(body[:20]))
def test_what_is_no_record_is_refused(refusing: Running, body: bytes) -> None:
    with refusing.http() as http:
        for _, path in asked(refusing, "POST"):
            answer = http.post(path, content=body)
            assert answer.status_code in (400, 404, 501), path
            assert is_error(path, answer.json()), path
    assert refusing.engine.seen == []


def test_large_bodies_are_refused(refusing: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose length is declared, before they come; others where they are too long."""
    monkeypatch.setattr(bodies, "MAX_BODY", 1 << 16)
    declared = http.client.HTTPConnection("127.0.0.1", refusing.server.port)
    with refusing.http() as client:
        for _, path in asked(refusing, "POST"):
            declared.putrequest("POST", path)
            declared.putheader("Content-Length", str(33 << 20))
            declared.endheaders()
            assert declared.getresponse().status == 413, path
            declared.close()
            answer = client.post(path, content=iter([b"x" * (1 << 15)] * 3))
            assert answer.status_code in (413, 501), path
            assert is_error(path, answer.json()), path
    assert refusing.engine.seen == []


def test_the_token_in_each_of_its_headers(refusing: Running) -> None:
    for headers in ({"Authorization": f"bearer {TOKEN}"}, {"api-key": TOKEN}, {"x-api-key": TOKEN}):
        assert httpx.get(f"{refusing.url}/v1/models", headers=headers).status_code == 200

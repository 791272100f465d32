"""Named keys over HTTP, their limits, and the log of who asked."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import protocol as p
from engine.doors.access import KeyUse
from engine.doors.cli.serve import _of_access
from engine.doors.serve import Server, open_socket
from engine.doors.tls import Tls
from engine.loop.commands import AddRequest
from engine.protocol.access import AddKey, NamedKey, RevokeKey
from engine.protocol.operations import ADD_KEY, REVOKE_KEY
from engine.services.operations import perform
from tests.engine.doors.network.conftest import Running
from tests.engine.doors.network.fake import FakeEngine, FakeProbes
from tests.kit.servers import TOKEN

ASKED = {"messages": [{"role": "user", "content": "secret words"}], "max_tokens": 3}


def key_of(name: str, **limits: Any) -> str:
    return perform(ADD_KEY, AddKey(name=name, **limits)).key


def asking(running: Running, key: str) -> httpx.Client:
    return httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {key}"}, timeout=300)


def test_a_named_key_opens_http_until_it_is_revoked(running: Running) -> None:
    key = key_of("laptop")
    with asking(running, key) as http, httpx.Client(base_url=running.url, headers={"x-api-key": key}) as other:
        assert http.post("/v1/chat/completions", json=ASKED).status_code == 200
        assert other.get("/metrics").status_code == 200
        perform(REVOKE_KEY, RevokeKey(name="laptop"))
        refused = http.get("/v1/models")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "kvasir keys add" in refused.json()["error"]["message"]
        assert other.get("/metrics").status_code == 401


@pytest.mark.parametrize(
    ("key", "tier", "service"),
    [
        ("", None, ""),
        ("", "priority", "interactive"),
        ("interactive", None, "interactive"),
        ("interactive", "flex", "batch"),
        ("standard", "priority", "standard"),
        ("batch", "default", "batch"),
    ],
)
def test_a_key_says_how_urgent_its_requests_may_be(running: Running, key: Any, tier: str | None, service: str) -> None:
    with asking(running, key_of("laptop", service=key)) as http:
        assert http.post("/v1/chat/completions", json={**ASKED, "service_tier": tier}).status_code == 200
    asked = running.asked
    assert asked[-1].service == service


def test_a_header_chooses_the_class_in_every_dialect(running: Running) -> None:
    with asking(running, key_of("laptop", service="standard")) as http:
        codes = [
            http.post("/v1/chat/completions", json=ASKED, headers={"X-Kvasir-Service": service}).status_code
            for service in ("batch", "interactive", "urgent")
        ]
        told = http.post("/api/chat", json={**ASKED, "model": "tiny"}, headers={"X-Kvasir-Service": "batch"})
        refused = http.post("/v1/chat/completions", json=ASKED, headers={"X-Kvasir-Service": "urgent"}).json()
    assert (codes, told.status_code) == ([200, 200, 400], 200)
    assert "interactive, standard, batch" in refused["error"]["message"]
    asked = [each.service for each in running.engine.seen if isinstance(each, AddRequest)]
    assert asked == ["batch", "standard", "batch"]


def test_a_named_key_does_not_open_the_websocket(running: Running) -> None:
    with running.connect() as socket:
        socket.send(p.encode(p.Hello(token=key_of("laptop"), protocol=p.PROTOCOL)))
        refusal: Any = p.decode_from_engine(socket.recv(timeout=300))
    assert isinstance(refusal, p.Error)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions", lambda body: (body["error"]["type"], body["error"]["code"])),
        ("/v1/responses", lambda body: (body["error"]["type"], body["error"]["code"])),
        ("/tokenize", lambda body: (body["error"]["type"], body["error"]["code"])),
        ("/v1/messages", lambda body: (body["type"], body["error"]["type"])),
        ("/api/chat", lambda body: tuple(body)),
    ],
)
def test_too_many_requests_are_refused_in_the_shape_of_the_dialect(running: Running, path: str, kind: Any) -> None:
    with asking(running, key_of("laptop", rate=2)) as http:
        assert [http.get("/v1/models").status_code for _ in range(2)] == [200, 200]
        refused = http.post(path, json=ASKED)
    assert refused.status_code == 429
    assert 20 <= int(refused.headers["retry-after"]) <= 30
    assert "2 requests a minute" in refused.text
    shapes = {"/v1/messages": ("error", "rate_limit_error"), "/api/chat": ("error",)}
    assert kind(refused.json()) == shapes.get(path, ("requests", "rate_limit_exceeded"))
    with running.http() as session:
        assert session.get("/v1/models").status_code == 200, "the session's token has no limit"


def test_a_bucket_fills_steadily() -> None:
    key = NamedKey(name="a", created=0, rate=6)
    use = KeyUse(key, 0.0)
    assert [use.refusal(key, 0.0) is None for _ in range(7)] == [True] * 6 + [False]
    late = use.refusal(key, 4.0)
    assert late is not None
    assert late.headers == {"retry-after": "6"}
    assert use.refusal(key, 10.0) is None
    assert use.refusal(key, 10.0) is not None
    assert [use.refusal(key, 1e6) is None for _ in range(7)] == [True] * 6 + [False], "no more than a minute's"


def test_requests_at_once_are_counted_to_their_end(running: Running) -> None:
    key = key_of("laptop", concurrent=1)
    running.engine.gate.clear()
    with asking(running, key) as http:
        with http.stream("POST", "/v1/chat/completions", json={**ASKED, "stream": True}) as answer:
            refused = http.get("/v1/models")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert "1 request in progress" in refused.text
            running.engine.gate.set()
            assert answer.read().endswith(b"data: [DONE]\n\n")
        assert [http.get("/v1/models").status_code for _ in range(3)] == [200] * 3


def test_a_refused_request_counts_no_longer_than_it_lasts(running: Running) -> None:
    with asking(running, key_of("laptop", concurrent=1)) as http:
        codes = [http.post("/v1/chat/completions", json={"messages": 1}).status_code for _ in range(3)]
    assert codes == [400] * 3


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    lines = [each.message for each in caplog.records if each.name == "engine.doors.access"]
    return [dict(part.split("=", 1) for part in line.split(" ")) for line in lines]


def test_the_log_says_who_asked_what_without_texts(home: object, caplog: pytest.LogCaptureFixture) -> None:
    key, made = key_of("laptop"), Running(logs=True)
    caplog.set_level(logging.INFO, "engine.doors.access")
    try:
        with asking(made, key) as http:
            http.post("/v1/chat/completions?key=of-mine", json=ASKED, headers={"X-Forwarded-For": "10.0.0.1"})
            http.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"})
            http.get("/what%0Aline=2 x", headers={"Authorization": "Bearer wrong"})
            http.get("/v1/models", headers={"Host": "evil.example"})
    finally:
        made.stop()
    asked, own, unknown, foreign = logged(caplog)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", asked["time"])
    assert (asked["key"], asked["client"], asked["method"], asked["path"]) == (
        "laptop", "127.0.0.1", "POST", "/v1/chat/completions"
    )  # fmt: skip
    assert (asked["status"], asked["generated_tokens"]) == ("200", "3")
    assert int(asked["prompt_tokens"]) > 3
    assert float(asked["seconds"]) >= 0
    assert (own["key"], own["status"], "prompt_tokens" in own) == ("session", "200", False)
    assert (unknown["key"], unknown["path"], unknown["status"]) == ("-", "/what%0Aline%3D2%20x", "404")
    assert (foreign["key"], foreign["status"]) == ("-", "421")
    written = [each.getMessage() for each in caplog.records if each.name.startswith("engine.")]  # httpx logs, too
    assert not any(word in line for line in written for word in ("secret", "words", key, TOKEN, "of-mine", "wrong"))


def test_nothing_is_logged_unless_asked_for(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "engine.doors.access"), running.http() as http:
        assert http.get("/v1/models").status_code == 200
    assert logged(caplog) == []


@pytest.fixture
def open_server() -> Iterator[Server]:
    """A server that others could reach. It does not run."""
    server = Server(open_socket("0.0.0.0", 0), TOKEN, lambda emit: FakeEngine(emit), FakeProbes())
    yield server
    server.listener.close()


def test_who_opens_it_to_others_is_told_of_keys_and_of_tls(open_server: Server, running: Running) -> None:
    said = " ".join(_of_access(open_server, None))
    assert "--tls" in said
    assert "kvasir keys add" in said
    key_of("laptop")
    assert list(_of_access(open_server, Tls(Path("x"), None, "AB:CD"))) == [
        "The certificate is in x, its SHA-256 fingerprint AB:CD"
    ]
    assert list(_of_access(running.server, None)) == []

"""Pictures at web addresses, fetched from a server of this test."""

from __future__ import annotations

import asyncio
import base64
import http.server
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from engine.doors.http import pictures
from engine.doors.http.fields import BadField
from engine.doors.http.openai.tokens import ConversationIn, TokenRoutes
from engine.doors.http.openai.types import OpenAIChat
from engine.doors.http.pictures import MOST, fetch_pictures
from engine.doors.http.prompts import MARK, PromptsIn, pictured, prompts_of
from engine.protocol import ChatMessage

FILE = b"\x89PNG a picture"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        places = {"/moved": "/picture", "/round": "/round", "/away": "file:///etc/passwd", "/ftp": "ftp://localhost/x"}
        if self.path in places:
            self.send_response(302)
            self.send_header("Location", places[self.path])
            self.end_headers()
        elif self.path == "/none":
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(40 if self.path == "/slow" else 1):
                    self.wfile.write(FILE)
                    self.wfile.flush()
                    time.sleep(0.1 if self.path == "/slow" else 0)
            except OSError:  # nobody listens any more
                return

    def log_message(self, *args: Any) -> None:
        """Nothing is written."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def asked(*urls: str, plain: bool = False) -> OpenAIChat:
    parts = [{"type": "image_url", "image_url": url if plain else {"url": url}} for url in urls]
    content = [{"type": "text", "text": "What is this?"}, *parts]
    return msgspec.convert({"messages": [{"role": "user", "content": content}]}, OpenAIChat)


def fetched(*urls: str, plain: bool = False) -> list[bytes]:
    wanted = asked(*urls, plain=plain)
    asyncio.run(fetch_pictures(wanted.pictured))
    return wanted.prompt()[0].pictures


def test_those_of_plain_text_and_of_counted_conversations(address: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"{address}/picture"}}
    given = msgspec.convert(["a", {"content": [{"type": "text", "text": "b"}, picture]}], PromptsIn)  # type: ignore[arg-type]
    asyncio.run(fetch_pictures(pictured(given, "prompt")))
    assert prompts_of(given, "prompt") == ["a", ChatMessage.of("user", f"b{MARK}", pictures=[FILE])]
    counted = msgspec.convert({"messages": [{"role": "user", "content": [picture]}]}, ConversationIn)
    service: Any = SimpleNamespace(fetches=True)
    (said,) = asyncio.run(TokenRoutes(service)._said(counted, 5))
    assert said.pictures == [FILE]


def test_files_take_the_places_of_their_addresses(address: str) -> None:
    data = f"data:image/png;base64,{base64.b64encode(b'own').decode()}"
    assert fetched(f"{address}/picture", data, f"{address}/moved") == [FILE, b"own", FILE]
    assert fetched(f"{address}/picture", plain=True) == [FILE]


def test_it_is_refused_where_it_is_not_asked_for(address: str) -> None:
    with pytest.raises(BadField, match="--fetch-pictures"):
        asked(f"{address}/picture").prompt()


@pytest.mark.parametrize(
    ("path", "reason"), [("/none", "Not Found"), ("/round", "redirect"), ("/away", "not allowed"), ("/ftp", "")]
)
def test_what_cannot_be_fetched_is_said(address: str, path: str, reason: str) -> None:
    with pytest.raises(BadField, match=f"(?s)The picture at {address}{path} cannot be downloaded.*{reason}") as refused:
        fetched(f"{address}{path}")
    assert refused.value.param == "messages[0].content[1].image_url"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "picture.png", "HTTP://127.0.0.1/x"])
def test_other_addresses_are_not_followed(url: str) -> None:
    with pytest.raises(BadField, match="not fetched"):
        fetched(url)


def test_nobody_answers() -> None:
    with pytest.raises(BadField, match="cannot be downloaded"):
        fetched("http://127.0.0.1:1/picture")
    with pytest.raises(BadField, match="cannot be downloaded"):
        fetched("http://[::1/picture")


def test_it_has_bounds(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadField, match=f"{MOST} pictures of a request"):
        fetched(*[f"{address}/picture"] * (MOST + 1))
    monkeypatch.setattr(pictures, "PATIENCE_S", 0.5)
    with pytest.raises(BadField, match="more than 0 seconds"):
        fetched(f"{address}/slow")
    monkeypatch.setattr(pictures, "REQUEST_S", 0.0)
    with pytest.raises(BadField, match="all pictures of the request took more than 0 seconds"):
        fetched(f"{address}/picture")
    monkeypatch.setattr(pictures, "REQUEST_S", 9.0)
    monkeypatch.setattr(pictures, "MOST_BYTES", 10)
    with pytest.raises(BadField, match="more than 10 bytes"):
        fetched(f"{address}/picture")


def test_slow_addresses_hold_up_no_other_work(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads in which prompts are read are not those in which addresses are waited for."""

    async def others_while_waiting() -> int:
        slow = [asyncio.create_task(fetch_pictures(asked(f"{address}/picture").pictured)) for _ in range(64)]
        waiting = await asyncio.to_thread(lambda: 7)
        assert not any(task.done() for task in slow)
        stop.set()
        await asyncio.gather(*slow)
        return waiting

    stop = threading.Event()
    monkeypatch.setattr(pictures, "_read", lambda url, end: stop.wait(30) and FILE)
    assert asyncio.run(others_while_waiting()) == 7

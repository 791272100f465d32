"""How downloads go out: proxies and certificates of the environment, and who is told a token on the way."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from engine.base.fetching.client import opened
from engine.base.fetching.errors import FetchFailed
from engine.library import hub as library
from tests.engine.library.library_support import kvasir
from tests.hub_server import Hub
from tests.range_server import RangeServer


class Socks:
    """A SOCKS proxy (RFC 1928) without passwords; ``asked``: where it was sent to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            client.recv(2 + client.recv(2, socket.MSG_PEEK)[1])
            client.sendall(b"\5\0")
            kind = client.recv(4)[3]
            host = client.recv(client.recv(1)[0]).decode() if kind == 3 else socket.inet_ntoa(client.recv(4))
            (port,) = struct.unpack("!H", client.recv(2))
            self.asked.append((host, port))
            with socket.create_connection((host, port)) as onwards:
                client.sendall(b"\5\0\0\1\0\0\0\0\0\0")
                there = threading.Thread(target=self._pass, args=(client, onwards))
                there.start()
                self._pass(onwards, client)
                there.join()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 16):
                target.sendall(block)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "http_proxy"])
def test_the_hub_and_its_files_are_asked_through_a_socks_proxy(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    proxy = Socks()
    monkeypatch.setenv(variable, f"socks5h://{proxy.address}")
    got = kvasir("get", "some/model-GGUF", "Q4_K_M")
    assert got.exit_code == 0, got.stderr
    assert {host for host, _ in proxy.asked} == {"127.0.0.1", "localhost"}
    assert len(proxy.asked) >= len(hub.asked)
    proxy.close()


def test_a_proxy_that_does_not_answer_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    assert "127.0.0.1, through the proxy in ALL_PROXY, cannot be reached" in kvasir("search", "model").stderr
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert kvasir("search", "model").exit_code == 0


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ALL_PROXY", "socks4://127.0.0.1:9", "ALL_PROXY cannot be used as a proxy"),
        ("all_proxy", "socks://127.0.0.1:9", "all_proxy cannot be used as a proxy"),
        ("HTTPS_PROXY", "http://", "HTTPS_PROXY cannot be used as a proxy"),
        ("http_proxy", "http://secret:word@host:port", "http_proxy cannot be used as a proxy"),
        ("SSL_CERT_FILE", "/nothing/there.pem", "SSL_CERT_FILE names /nothing/there.pem, where no file is"),
        ("SSL_CERT_FILE", "/dev/zero", "SSL_CERT_FILE names /dev/zero, where no file is"),
        ("SSL_CERT_FILE", __file__, "which holds no certificates"),
        ("REQUESTS_CA_BUNDLE", "/nothing/there.pem", "REQUESTS_CA_BUNDLE names /nothing/there.pem"),
        ("CURL_CA_BUNDLE", __file__, "CURL_CA_BUNDLE names"),
        ("SSL_CERT_DIR", "/nothing", "SSL_CERT_DIR names /nothing, which is not a folder"),
    ],
)
def test_what_cannot_be_used_is_named(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    failed = kvasir("search", "model")
    assert failed.exit_code == 1
    assert said in failed.stderr
    assert "secret" not in failed.stderr
    with pytest.raises(FetchFailed, match=variable), opened(hub.address, 5):
        pass


class Onwards(RangeServer):
    """Sends on: ``to`` by path. ``told``: path and Authorization of each request."""

    def __init__(self) -> None:
        self.to: dict[str, str] = {}
        self.told: list[tuple[str, str]] = []
        super().__init__()

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        self.told.append((to.path, to.headers.get("Authorization", "")))
        to.send_response(302 if to.path in self.to else 200)
        to.send_header("Location", self.to.get(to.path, ""))
        to.end_headers()


@pytest.fixture
def servers() -> Iterator[tuple[Onwards, Onwards]]:
    pair = Onwards(), Onwards()
    yield pair
    for server in pair:
        server.close()


def test_a_token_is_told_to_one_server_and_not_again_once_it_has_left(servers: tuple[Onwards, Onwards]) -> None:
    ours, theirs = servers
    ours.to = {"/": "/here", "/here": f"{theirs.address}/away"}
    theirs.to = {"/away": f"{ours.address}/back"}
    with opened(ours.address, 5, token="hf_secret") as answer:
        assert answer.status_code == 200
    assert ours.told == [("/", "Bearer hf_secret"), ("/here", "Bearer hf_secret"), ("/back", "")]
    assert theirs.told == [("/away", "")]


def test_sending_on_has_an_end(servers: tuple[Onwards, Onwards], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = servers
    ours.to = {"/api/models/some/model?blobs=true": "/round", "/round": "/round"}
    monkeypatch.setenv("HF_ENDPOINT", ours.address)
    with pytest.raises(library.HubFailed, match="sends on more than 10 times"):
        library.repository("some/model")
    for where in ("file:///etc/passwd", "ftp://host/", "http://["):
        ours.to["/round"] = where
        with pytest.raises(library.HubFailed, match="cannot be reached"):
            library.repository("some/model")


def test_a_file_of_certificates_is_read(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import certifi

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    assert kvasir("search", "model").exit_code == 0

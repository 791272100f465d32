"""A server of wheels, on the loopback of the network it is made in, that can be as bad as servers and lines are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

BLOCK = 1 << 16


class Asked(NamedTuple):
    """A request that was answered. ``start``: the first byte that was asked for; ``sent``: bytes of content."""

    name: str
    start: int
    status: int
    sent: int


class Hold:
    """An answer that waits once so many bytes of the content are out."""

    def __init__(self, name: str, at: int) -> None:
        self.name, self.at = name, at
        self.reached, self.released = threading.Event(), threading.Event()


class Index:
    """Serves the wheels of ``folder``.

    ``ranges``: whether it knows of Range. ``cuts``: by a file's name, after how many bytes its next answer is cut off.
    ``hold``: one answer that waits. ``spoilt``: files of which one bit is sent wrong. ``strange``: addresses that no
    list names and that were asked for all the same.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.ranges = folder, True
        self.cuts: dict[str, int] = {}
        self.hold: Hold | None = None
        self.spoilt: set[str] = set()
        self.log: list[Asked] = []
        self._sending = 0
        self._idle = threading.Condition()
        self.strange: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answer))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        if self.hold:
            self.hold.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked(self, name: str) -> list[Asked]:
        return [entry for entry in self.log if entry.name == name]

    def settle(self) -> None:
        """Returns when nothing is being sent: what was sent is written down after the other side may have it all."""
        with self._idle:
            assert self._idle.wait_for(lambda: not self._sending, timeout=30)

    def forget(self) -> None:
        self.log.clear()

    def _answer(self, to: BaseHTTPRequestHandler) -> None:
        to.close_connection = True
        with self._idle:
            self._sending += 1
        try:
            self._send_file(to)
        finally:
            with self._idle:
                self._sending -= 1
                self._idle.notify_all()

    def _send_file(self, to: BaseHTTPRequestHandler) -> None:
        folder, _, name = unquote(to.path).rpartition("/")
        file = self.folder / name
        if folder != "/wheels" or to.command != "GET" or not file.is_file():
            self.strange.append(f"{to.command} {to.path}")
            to.send_error(404)
            return
        size, asked = file.stat().st_size, to.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        begin = start if self.ranges else 0
        to.send_response(206 if begin else 200)
        to.send_header("Content-Length", str(size - begin))
        if begin:
            to.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
        to.end_headers()
        sent = self._send(to, file, begin, min(size, begin + self.cuts.pop(name, size)))
        self.log.append(Asked(name, start, 206 if begin else 200, sent))

    def _send(self, to: BaseHTTPRequestHandler, file: Path, begin: int, end: int) -> int:
        """How many bytes went out before the other side was gone."""
        sent = 0
        with file.open("rb") as content:
            content.seek(begin)
            while (at := begin + sent) < end:
                hold = self.hold
                if hold and hold.name == file.name and at >= hold.at:
                    hold.reached.set()
                    hold.released.wait()
                block = bytearray(content.read(min(BLOCK, end - at)))
                if at == 0 and file.name in self.spoilt:
                    block[-1] ^= 1
                try:
                    to.wfile.write(block)
                except OSError:  # the program was killed
                    return sent
                sent += len(block)
        return sent


def _handler(answer: Callable[[BaseHTTPRequestHandler], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_HEAD = do_POST = do_GET  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler

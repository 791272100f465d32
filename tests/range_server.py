"""A web server on this machine for tests: one thread, answers in ranges of bytes, and lines that are cut."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = 1 << 14


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no news here."""


class RangeServer:
    """Has each request answered by :meth:`answer`. ``cuts``: for each of the next answers with content, after how many
    bytes the line is cut. ``statuses``: of the next answers, which are errors. ``page``: all that comes, as from
    somebody in between."""

    protocol = "HTTP/1.0"

    def __init__(self) -> None:
        self.cuts: list[int] = []
        self.statuses: list[int] = []
        self.page = b""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = self.protocol

            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def send(
        self, to: BaseHTTPRequestHandler, content: bytes, span: tuple[int, int] | None, before: Callable[[int], object]
    ) -> int:
        """Answer with ``content``, or with the ``span`` of it that was asked for (:func:`asked_span`), as far as it is
        not cut; returns the bytes that went out. ``before`` is told them before each block."""
        start, stop = span or (0, len(content))
        to.send_response(200 if span is None else 206)
        to.send_header("Content-Length", str(stop - start))
        if span is not None:
            to.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        to.end_headers()
        end, at = min(stop, start + self.cuts.pop(0)) if self.cuts else stop, start
        try:
            while at < end:
                before(at - start)
                to.wfile.write(content[at : min(at + BLOCK, end)])
                at = min(at + BLOCK, end)
        except (BrokenPipeError, ConnectionResetError):
            pass
        to.close_connection = True
        return at - start


def asked_span(to: BaseHTTPRequestHandler, length: int) -> tuple[int, int] | None:
    """The first byte and the one after the last that a request's Range names; None without one. Raises ValueError for
    one that a content of ``length`` bytes does not have."""
    asked = to.headers.get("Range", "")
    if not asked:
        return None
    first, _, last = asked.removeprefix("bytes=").partition("-")
    start, stop = int(first), int(last) + 1 if last else length
    if start >= length or stop > length:
        raise ValueError(asked)
    return start, stop

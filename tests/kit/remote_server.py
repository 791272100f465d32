"""A stand-in for a server elsewhere that speaks OpenAI's API, or does not."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EVENTS = "text/event-stream"


def chunk(**delta: Any) -> bytes:
    """A part of a streamed answer."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


class Odd:
    """A server that answers every request with these bytes, and keeps what it was asked. ``replies``: those of the next
    requests, of which the last is given to all later ones."""

    def __init__(self, content: bytes, kind: str = "application/json", status: int = 200, cut: bool = False) -> None:
        self.asked: list[tuple[str, str | None, Any]] = []
        self.replies: list[tuple[bytes, str, int, bool]] = [(content, kind, status, cut)]
        odd = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                odd.asked.append((self.path, self.headers["Authorization"], None))
                self._send(b'{"data": [{"id": "m", "max_model_len": 4096}]}', "application/json", 200)

            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                odd.asked.append((self.path, self.headers["Authorization"], sent))
                self._send(*(odd.replies.pop(0) if len(odd.replies) > 1 else odd.replies[0]))

            def _send(self, content: bytes, kind: str, status: int, cut: bool = False) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content) + cut))
                self.send_header("Location", "https://elsewhere.example/v1")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Twice does no harm."""
        self.server.shutdown()
        self.server.server_close()

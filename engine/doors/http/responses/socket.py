"""Responses by a websocket: each frame is asked as a POST to the same address is, and each event of its stream is told
as a frame, so that keys, limits and the log are those of HTTP.

Source: https://developers.openai.com/api/docs/guides/websocket-mode
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import msgspec
from starlette.types import Message, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.doors.access import door_of
from engine.doors.security import KEY_HEADERS, HttpRefusal, error_body

MOST_WAITING = 1
"""Requests that wait for the answer to the one before."""
SOCKET = "kvasir.socket"
"""Where the scope of a request has the name of the websocket that it came by."""
_ASKS = frozenset(name.encode() for name in ("host", "origin", "authorization", *KEY_HEADERS))
"""Headers of the handshake that its requests have, too; the others say how it was made."""
_BUSY = HttpRefusal(
    429,
    "rate_limit_exceeded",
    "An answer is written on this connection, and another request waits. Wait until one has ended, or open another "
    "connection.",
)


class ResponsesSocket:
    """Lives as long as its websocket. It answers one request after the other."""

    def __init__(self, socket: WebSocket) -> None:
        self.name = secrets.token_hex(16)
        self._socket = socket
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        """Frames; None comes after the last one."""
        self._left = 0
        """Those that were not answered yet."""
        self._gone = asyncio.Event()

    async def run(self) -> None:
        await self._socket.accept()
        reading = asyncio.create_task(self._read())
        try:
            while (frame := await self._waiting.get()) is not None and not self._gone.is_set():
                await self._ask(frame)
                self._left -= 1
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        """Take what comes, also while an answer is written: else nobody would hear that the client has gone."""
        try:
            while (event := await self._socket.receive())["type"] != "websocket.disconnect":
                if self._left <= MOST_WAITING:
                    self._left += 1
                    self._waiting.put_nowait(event.get("bytes") or (event.get("text") or "").encode())
                else:
                    await self._refuse(429, error_body(_BUSY))
        finally:
            self._gone.set()
            self._waiting.put_nowait(None)

    async def _ask(self, frame: bytes) -> None:
        left: list[Message] = [{"type": "http.request", "body": frame, "more_body": False}]
        status = 0

        async def receive() -> Message:
            if not left:
                await self._gone.wait()
                return {"type": "http.disconnect"}
            return left.pop()

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            body = message.get("body", b"")
            if body and status == 200:
                await self._tell(body)
            elif body:
                await self._refuse(status, msgspec.json.decode(body))

        await door_of(self._socket.scope)(self._scope(), receive, send)

    def _scope(self) -> Scope:
        """That of a request as uvicorn makes it."""
        scope = self._socket.scope
        headers = [(name, value) for name, value in scope["headers"] if name in _ASKS]
        kept = ("app", "client", "http_version", "path", "raw_path", "root_path", "server", "state")
        made = {name: scope[name] for name in kept}
        scheme = {"ws": "http", "wss": "https"}[scope["scheme"]]
        asgi = {"version": "3.0", "spec_version": "2.3"}
        made |= {"type": "http", "asgi": asgi, "method": "POST", "scheme": scheme, "query_string": b""}
        return made | {"headers": headers, SOCKET: self.name}

    async def _tell(self, part: bytes) -> None:
        """An event of a stream. An error within it is told by the ``response.failed`` that comes next, because either
        ends an answer here."""
        kind, _, data = part.partition(b"\ndata: ")
        if kind != b"event: error":
            await self._send(data.strip())

    async def _refuse(self, status: int, body: dict[str, Any]) -> None:
        await self._send(msgspec.json.encode({"type": "error", "status": status, **body}))

    async def _send(self, frame: bytes) -> None:
        try:
            await self._socket.send_text(frame.decode())
        except (WebSocketDisconnect, RuntimeError):
            self._gone.set()

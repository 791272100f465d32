"""Who may talk to the engine: programs of this machine that know the token, never a web page."""

from __future__ import annotations

import hmac
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK_NAMES = frozenset(["127.0.0.1", "localhost", "::1"])
MAX_BODY = 32 * 1024 * 1024
"""Largest HTTP request body, bytes."""


class Refusal(NamedTuple):
    status: int
    code: str
    message: str
    param: str | None = None
    """The field of a request that it is about."""


def token_matches(given: str, token: str) -> bool:
    """Compares in constant time; an empty token matches nothing."""
    return bool(token) and hmac.compare_digest(given.encode(), token.encode())


def bearer(authorization: str) -> str:
    """The token of an Authorization header, or an empty string."""
    scheme, _, value = authorization.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


class Gate:
    """Checks Host and Origin. A web page can make a browser connect here, but cannot choose these two headers.

    ``open_host``: the server listens beyond the loopback, so the machine's own addresses are allowed as Host too (never
    names, which a page's owner could point here).
    """

    def __init__(self, port: int, open_host: bool = False) -> None:
        self.port = port
        self.open_host = open_host

    def refuses(self, headers: Headers) -> Refusal | None:
        if not self._own(headers.get("host", "")):
            return Refusal(421, "wrong_host", f"This engine answers only to 127.0.0.1:{self.port}. Use that address.")
        origin = headers.get("origin")
        if origin is not None and not self._own_origin(origin):
            return Refusal(403, "foreign_origin", "Web pages may not use this engine. Use a program with its token.")
        return None

    def _own_origin(self, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme == "http" and self._own(parts.netloc)

    def _own(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if port != self.port or parts.netloc != host or "@" in host:
            return False
        return name in LOOPBACK_NAMES or (self.open_host and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class GateMiddleware:
    """Refuses HTTP requests and websocket handshakes before anything else sees them."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._gate.refuses(headers) or _too_large(headers)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await error_response(refusal)(scope, receive, send)
        else:
            await receive()  # the connect event
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.message[:120]})


def _too_large(headers: Headers) -> Refusal | None:
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY:
        return Refusal(413, "too_large", f"The request is larger than {MAX_BODY >> 20} MiB. Send less.")
    return None


def error_body(refusal: Refusal) -> dict[str, dict[str, str | None]]:
    """The shape of error that OpenAI's clients understand."""
    if refusal.status >= 500:
        kind = "server_error"
    else:
        kind = "authentication_error" if refusal.status in (401, 403) else "invalid_request_error"
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}}


def error_response(refusal: Refusal) -> JSONResponse:
    return JSONResponse(error_body(refusal), status_code=refusal.status)


def refuse_stranger(headers: Headers, token: str) -> JSONResponse | None:
    """The response for whoever does not know the token; None for who does."""
    if token_matches(bearer(headers.get("authorization", "")), token):
        return None
    text = "The token is missing or wrong. Send the one in the token file as API key (Authorization: Bearer TOKEN)."
    return error_response(Refusal(401, "invalid_api_key", text))

"""Access control of the engine: programs of this machine that know the token, and no web page but those allowed."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.services.answers.refused import shortened

LOOPBACK_NAMES = frozenset(["127.0.0.1", "localhost", "::1"])
MAX_BODY = 32 * 1024 * 1024
"""Largest HTTP request body, bytes."""
KEY_HEADERS = ("x-api-key", "api-key")
"""Where clients of Anthropic's and of Azure's interface put the token."""
MOST_MESSAGE, MOST_PARAM = 2_000, 200
"""Characters of an error: what a client sent may stand in it, and may be long."""
PREFLIGHT_SECONDS = 600
"""How long a browser may remember that an origin is allowed."""
_TYPES = {401: "authentication_error", 403: "authentication_error", 429: "requests"}
"""OpenAI's kinds of errors by their status, where it is no "invalid_request_error"."""


class HttpRefusal(NamedTuple):
    status: int
    code: str
    message: str
    param: str | None = None
    """The field of a request that it is about."""
    figures: Mapping[str, int] = {}
    """What programs may want to know of it, by name."""
    headers: Mapping[str, str] = {}
    """Headers of the response."""


def token_matches(given: str, token: str) -> bool:
    """Compares in constant time; an empty token matches nothing."""
    return bool(token) and hmac.compare_digest(given.encode(), token.encode())


def bearer(authorization: str) -> str:
    """The token of an Authorization header, or an empty string."""
    scheme, _, value = authorization.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


class Allowed(NamedTuple):
    """Origins and hosts that the user of the server lets in besides its own address.

    ``origins`` of web pages ("https://chat.example", "*" stands for any characters but "/"), and ``hosts``, names by
    which the server is reached, with a port ("nas:8642") or with any.
    """

    origins: Sequence[str] = ()
    hosts: Sequence[str] = ()

    def origin(self, given: str) -> bool:
        """Return True if pages of this origin may use the server."""
        return any(_matches(pattern, given) for pattern in self.origins)

    def host(self, given: str) -> bool:
        """Return True if a request may name this host."""
        return any(_is_host(given.lower(), host.lower()) for host in self.hosts)


def _matches(pattern: str, origin: str) -> bool:
    return pattern == "*" or re.fullmatch("[^/]*".join(map(re.escape, pattern.lower().split("*"))), origin) is not None


def _is_host(given: str, host: str) -> bool:
    """Return True if ``given`` is that host, with any port if ``host`` has none."""
    port = given.removeprefix(f"{host}:")
    return given == host or (port != given and port.isascii() and port.isdigit())


class Gate:
    """Checks Host and Origin. A web page can make a browser connect here, but cannot choose these two headers.

    ``open_host``: the server listens beyond the loopback, so the machine's own addresses are allowed as Host too (never
    names, which a page's owner could point here, but for those that are ``allowed``). ``scheme``: "https" with TLS.
    """

    def __init__(self, port: int, open_host: bool = False, allowed: Allowed = Allowed(), scheme: str = "http") -> None:
        self.ports = [port]
        """Those that it listens on; the last one is that of other programs."""
        self.open_host = open_host
        self.allowed = allowed
        self.scheme = scheme

    def refuses(self, headers: Headers) -> HttpRefusal | None:
        host = headers.get("host", "")
        if not (self._own(host) or self.allowed.host(host)):
            text = (
                f"This engine answers only to 127.0.0.1:{self.ports[-1]}. Use that address, or start the server with "
                "--allow-host and the name."
            )
            return HttpRefusal(421, "wrong_host", text)
        origin = headers.get("origin")
        if origin is not None and not (self._own_origin(origin) or self.allowed.origin(origin)):
            text = (
                "Web pages may not use this engine. Use a program with its token, or start the server with "
                "--allow-origin and the address of the page."
            )
            return HttpRefusal(403, "foreign_origin", text)
        return None

    def cors(self, headers: Headers) -> dict[str, str]:
        """The headers by which a browser lets an allowed page read a response; none for others.

        Source: the Fetch standard, "HTTP responses" of its CORS protocol. Cookies play no part here.
        """
        origin = headers.get("origin")
        if origin is None or not self.allowed.origin(origin):
            return {}
        found = {"access-control-allow-origin": origin, "access-control-expose-headers": "*", "vary": "origin"}
        if "access-control-request-private-network" in headers:
            found["access-control-allow-private-network"] = "true"
        return found

    def _own_origin(self, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme == self.scheme and self._own(parts.netloc)

    def _own(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if port not in self.ports or parts.netloc != host or "@" in host:
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
        cors = self._gate.cors(headers) if scope["type"] == "http" else {}
        if cors:
            send = _with_headers(send, cors)
        if cors and refusal is None and _is_preflight(scope, headers):
            await _preflight(headers)(scope, receive, send)
        elif refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await error_response(refusal)(scope, receive, send)
        else:
            await receive()  # the connect event
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.message[:120]})


def _with_headers(send: Send, added: dict[str, str]) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(added)
        await send(message)

    return wrapped


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _preflight(headers: Headers) -> Response:
    """Answer a CORS preflight; the routes decide what a page may send, and all want the token. The status is 200, as
    some old clients fail at 204."""
    wanted = headers.get("access-control-request-headers", "authorization, content-type")
    return Response(
        headers={
            "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
            "access-control-allow-headers": wanted,
            "access-control-max-age": str(PREFLIGHT_SECONDS),
        },
    )


def _too_large(headers: Headers) -> HttpRefusal | None:
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MAX_BODY:
        return HttpRefusal(413, "too_large", f"The request is larger than {MAX_BODY >> 20} MiB. Send less.")
    return None


def error_body(refusal: HttpRefusal) -> dict[str, dict[str, str | int | None]]:
    """The shape of error that OpenAI's clients understand."""
    message, param = shortened(refusal.message, MOST_MESSAGE), refusal.param
    param = None if param is None else shortened(param, MOST_PARAM)
    kind = "server_error" if refusal.status >= 500 else _TYPES.get(refusal.status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": refusal.code, **refusal.figures}}


def error_response(refusal: HttpRefusal) -> JSONResponse:
    return JSONResponse(error_body(refusal), status_code=refusal.status)

"""Who may ask over HTTP: whoever knows the session's token, or a named key, which has limits of its own."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.decoding.scheduling.service import CLASSES, least_urgent
from engine.doors.security import KEY_HEADERS, HttpRefusal, bearer, token_matches
from engine.protocol.access import NamedKey, ServiceName
from engine.protocol.serving import HttpRequest
from engine.services.answers.stream import Stream
from engine.services.keys import KnownKeys
from engine.services.serving import Visits

log = logging.getLogger(__name__)

_SESSION_KEY = NamedKey(name="session", created=0)
"""Stands for the session's token, which has no limits."""
MOST_PATH = 200
"""Characters of a path in the log."""
_VISIT, _DOOR = "kvasir.visit", "kvasir.door"
"""Where a request's scope has its :class:`Visit`, and a websocket's the application."""
_STRANGER = HttpRefusal(
    401,
    "invalid_api_key",
    "The key is missing, wrong or no longer valid. Send one of `kvasir keys add NAME`, or the token in the token file "
    "(Authorization: Bearer KEY).",
    headers={"www-authenticate": "Bearer"},  # RFC 9110, section 11.6.1
)

SERVICE_HEADER = "x-kvasir-service"
_NO_CLASS = HttpRefusal(
    400, "service", f"The header {SERVICE_HEADER} names no service class: send {', '.join(CLASSES)}, or leave it out."
)


class KeyUse:
    """Use of one named key. A bucket of a minute's requests fills steadily, and each request takes one of them."""

    def __init__(self, key: NamedKey, now: float) -> None:
        self.running = 0
        self._left, self._at = float(key.rate), now

    def refusal(self, key: NamedKey, now: float) -> HttpRefusal | None:
        """Why another request would be too much at ``now`` (seconds); None where it is not, and then it counts."""
        if 0 < key.concurrent <= self.running:
            count = "1 request" if key.concurrent == 1 else f"{key.concurrent:,} requests"
            return _too_many(f"The key {key.name} may have {count} in progress. Wait until one has ended.", 1.0)
        if key.rate:
            self._left = min(float(key.rate), self._left + (now - self._at) * key.rate / 60)
            self._at = now
            if self._left < 1:
                text = f"The key {key.name} may make {key.rate:,} requests a minute. Wait, and send this one again."
                return _too_many(text, (1 - self._left) * 60 / key.rate)
            self._left -= 1
        self.running += 1
        return None


@dataclass(eq=False)
class Visit:
    """One request over HTTP.

    ``name``: of the key that it came with, "" where that was not accepted; ``status`` of the response, 0 before it;
    ``stream``: the model's answer, if it was asked for one.
    """

    scope: Scope
    began: float = field(default_factory=time.time)
    seconds: float | None = None
    """How long it took, once it has ended."""
    name: str = ""
    use: KeyUse | None = None
    status: int = 0
    stream: Stream | None = None
    service: ServiceName = ""
    """The class of its key's requests, or a less urgent one by its header."""

    def record(self) -> HttpRequest:
        """What is told of it: neither texts nor keys, and no query, which may hold either."""
        stream = self.stream
        return HttpRequest(
            began=self.began,
            seconds=max(0.0, time.time() - self.began) if self.seconds is None else self.seconds,
            path=quote(self.scope["path"], safe="/:@")[:MOST_PATH],
            key=self.name,
            client=(self.scope.get("client") or ("",))[0],
            method=self.scope["method"],
            model="" if stream is None else stream.model,
            prompt_tokens=0 if stream is None else stream.prompt_tokens,
            generated_tokens=0 if stream is None else stream.generated,
            service="" if stream is None else stream.service,
            status=self.status,
            running=self.seconds is None,
        )


class Access:
    """The token and the keys of a server."""

    def __init__(self, token: str, now: Callable[[], float] = time.monotonic) -> None:
        self.token = token
        self.keys = KnownKeys()
        self._now = now
        self._uses: dict[NamedKey, KeyUse] = {}

    def refusal(self, request: HTTPConnection) -> HttpRefusal | None:
        """Why the request is not answered; None for one with the token or a key, which is in use until its end."""
        visit = visit_of(request.scope)
        if (key := self._key(request.headers)) is None:
            return _STRANGER
        visit.name, asked = key.name, request.headers.get(SERVICE_HEADER, "")
        if asked and asked not in CLASSES:
            return _NO_CLASS
        visit.service = least_urgent(key.service, cast(ServiceName, asked))
        use = self._uses.setdefault(key, KeyUse(key, self._now()))
        if (refusal := use.refusal(key, self._now())) is None:
            visit.use = use
        return refusal

    def stranger(self, socket: HTTPConnection) -> HttpRefusal | None:
        """Why a websocket is not opened; None with the token or a key, whose limits count for what is asked by it."""
        return _STRANGER if self._key(socket.headers) is None else None

    def _key(self, headers: Headers) -> NamedKey | None:
        """The key of who sends these headers; None for strangers."""
        given = _given(headers)
        if any(token_matches(each, self.token) for each in given):
            return _SESSION_KEY
        return next((found for each in given if (found := self.keys.find(each)) is not None), None)


def visit_of(scope: Scope) -> Visit:
    """The visit that :class:`AccessMiddleware` began."""
    visit: Visit = scope[_VISIT]
    return visit


def door_of(scope: Scope) -> ASGIApp:
    """The whole application that a websocket came to."""
    door: ASGIApp = scope[_DOOR]
    return door


class AccessMiddleware:
    """Begins a visit with each HTTP request, and ends the use of its key with the response. What comes by a websocket
    may be asked here again, as such a request (:func:`door_of`).

    ``visits`` hears of each; ``logs``: a line in the log for each.
    """

    def __init__(self, app: ASGIApp, visits: Visits, logs: bool = False) -> None:
        self._app, self._visits, self._logs = app, visits, logs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            scope[_DOOR] = self
            await self._app(scope, receive, send)
            return
        scope[_VISIT] = visit = Visit(scope)
        began = time.monotonic()
        self._visits.begin(visit)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            if visit.use is not None:
                visit.use.running -= 1
            visit.seconds = time.monotonic() - began
            self._visits.end(visit)
            if self._logs:
                log.info("%s", _line(visit.record()))


def _line(told: HttpRequest) -> str:
    """A line of the access log, as logfmt, which `engine.decoding.simulate.trace` reads."""
    said: dict[str, object] = {
        "time": datetime.fromtimestamp(told.began, UTC).isoformat(timespec="milliseconds"),
        "key": told.key or "-",
        "client": told.client or "-",
        "method": told.method,
        "path": told.path,
        "status": told.status or "-",
        "seconds": f"{told.seconds:.3f}",
    }
    if told.model:
        said |= {"prompt_tokens": told.prompt_tokens, "generated_tokens": told.generated_tokens}
        said |= {"service": told.service} if told.service else {}
    return " ".join(f"{name}={value}" for name, value in said.items())


def _given(headers: Headers) -> list[str]:
    """The keys that a request brings."""
    found = (bearer(headers.get("authorization", "")), *(headers.get(name, "") for name in KEY_HEADERS))
    return [each for each in found if each]


def _too_many(text: str, seconds: float) -> HttpRefusal:
    # RFC 9110, section 10.2.3: whole seconds.
    return HttpRefusal(429, "rate_limit_exceeded", text, headers={"retry-after": str(max(1, math.ceil(seconds)))})

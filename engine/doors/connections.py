"""HTTP connections that wait for a request: closed when none comes, so that nobody holds them for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""How long the head of a request may take, from the connection or from its first byte on one that is kept."""
IDLE_SECONDS = 30
"""How long a connection is kept after a reply. Longer than clients keep theirs, who would else write into its end."""


class PatientHttp(H11Protocol):
    """Uvicorn's protocol, which alone waits for ever for a request that has begun or never does."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        upgraded = self.transport.get_protocol() is not self  # to a websocket, whose session has its own patience
        if answering or upgraded:
            self._stop_waiting()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Whatever comes meanwhile does not begin it anew: a byte now and then is no request."""
        if self._waiting is None and not self.transport.is_closing():
            self._waiting = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


class WatchedHttp(PatientHttp):
    """A connection to the port of other programs: ``noted`` is called when it comes and when it goes."""

    def __init__(self, noted: Callable[[], object], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._noted = noted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._noted()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._noted()

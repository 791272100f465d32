"""Operations on the HTTP server of this process: a port for other programs, and who asks what."""

from __future__ import annotations

from engine.base import stopping
from engine.protocol.serving import HttpRequests, ListenFor, Listening, WatchRequests
from engine.services.operations import Context, Emit, OperationFailed
from engine.services.serving import Serving

PAUSE_SECONDS = 0.25
"""Changes that follow each other within this time are told at once."""


def listen(context: Context, request: ListenFor, emit: Emit) -> Listening:
    """Raises :class:`OperationFailed`."""
    return Listening(url=_of(context).open_port(request.port))


def watch(context: Context, request: WatchRequests, emit: Emit) -> HttpRequests:
    """Raises :class:`OperationFailed`, and :class:`engine.base.stopping.Stopped` at its end."""
    visits, stop, seen = _of(context).visits, stopping.current(), -1
    while True:
        seen = visits.wait(seen, stop)
        emit(visits.now())
        stop.wait(PAUSE_SECONDS)


def _of(context: Context) -> Serving:
    if context.serving is None:
        raise OperationFailed("No server runs here. Start one with `kvasir serve`.")
    return context.serving

"""The web application: the websocket, health and metrics, and the HTTP interface."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from engine.decoding.telemetry import prometheus
from engine.doors.access import AccessMiddleware
from engine.doors.http.dialects import DIALECTS
from engine.doors.http.errors import failed, not_served
from engine.doors.http.service import HttpService
from engine.doors.security import Gate, GateMiddleware
from engine.doors.websocket.session import Session
from engine.library import paths as config
from engine.protocol import PROTOCOL
from engine.services.hub import EngineHub
from engine.services.residency import Residency


def make_app(
    hub: EngineHub, residency: Residency, token: str, gate: Gate, service: HttpService, logs: bool = False
) -> ASGIApp:
    """The application; the hub's engine thread runs while the application does. ``logs``: as of AccessMiddleware."""

    async def socket(websocket: WebSocket) -> None:
        await Session(websocket, hub, residency, token).run()

    async def health(request: Request) -> Response:
        loaded = hub.loaded
        model = loaded.card.name if loaded is not None else None
        return JSONResponse({"status": "ok", "version": config.version(), "protocol": PROTOCOL, "model": model})

    async def metrics(request: Request) -> Response:
        if (refusal := service.stranger(request)) is not None:
            return refusal
        text = prometheus.metrics(hub.window.totals, await hub.frame()) + hub.histograms.text()
        return Response(text, headers={"content-type": prometheus.CONTENT_TYPE})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        hub.start()
        try:
            yield
        finally:
            await hub.stop()

    routes = [
        WebSocketRoute("/ws", socket),
        Route("/health", health),
        Route("/metrics", metrics),
        *(route for dialect in DIALECTS for route in dialect(service).routes()),
    ]
    handlers: Any = {HTTPException: not_served, Exception: failed}
    # Around all of it: an allowed page is to read the response to an unexpected error, too.
    guarded = GateMiddleware(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), gate)
    return AccessMiddleware(guarded, logs)

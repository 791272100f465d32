"""The web application: the websocket, health and metrics, and the HTTP interface."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from engine.decoding.telemetry import histograms, prometheus
from engine.doors.access import AccessMiddleware
from engine.doors.http.dialects import DIALECTS
from engine.doors.http.errors import failed, not_served
from engine.doors.http.openapi import OpenApi, Served
from engine.doors.http.service import HttpService
from engine.doors.security import Gate, GateMiddleware
from engine.doors.websocket.session import Session
from engine.library import paths as config
from engine.protocol import PROTOCOL
from engine.services.hub import EngineHub
from engine.services.operations import Context
from engine.services.residency import Residency
from engine.services.serving import Serving

STARTED_HEADER = "process-start-time-unix"
"""llama.cpp's name in /metrics for the time since which is counted, in seconds since 1970."""

_SIGNS_OF_LIFE = ("/health", "/ping", "/version")
"""Addresses that tell whether the server runs: llama.cpp's, Amazon SageMaker's, and vLLM's."""


def make_app(
    hub: EngineHub,
    residency: Residency,
    token: str,
    gate: Gate,
    service: HttpService,
    serving: Serving,
    logs: bool = False,
) -> ASGIApp:
    """The application; the hub's engine thread runs while the application does. ``logs``: as of AccessMiddleware."""
    context, started = Context(hub, residency, serving), str(int(time.time()))

    async def socket(websocket: WebSocket) -> None:
        await Session(websocket, hub, residency, token, context).run()

    async def health(request: Request) -> Response:
        loaded = hub.loaded
        model = loaded.card.name if loaded is not None else None
        return JSONResponse({"status": "ok", "version": config.version(), "protocol": PROTOCOL, "model": model})

    async def load(request: Request) -> Response:
        """vLLM's count of requests in progress, by which load balancers choose a server."""
        return service.stranger(request) or JSONResponse({"server_load": hub.answering})

    async def metrics(request: Request) -> Response:
        if (refusal := service.stranger(request)) is not None:
            return refusal
        window, frame, answers, loaded = hub.window, await hub.frame(), hub.histograms, hub.loaded
        parts = (
            prometheus.metrics(window.totals, frame),
            histograms.text(answers.measured, "kvasir_"),
            prometheus.llamacpp(window.totals, frame, answers),
            "" if loaded is None else prometheus.vllm(window, frame, answers, loaded.card, serving.visits.limited),
        )
        return Response("".join(parts), headers={"content-type": prometheus.CONTENT_TYPE, STARTED_HEADER: started})

    async def described(request: Request) -> Response:
        if (refusal := service.stranger(request)) is not None:
            return refusal
        encoded = await asyncio.to_thread(lambda: document.encoded)  # made at the first request
        return Response(encoded, media_type="application/json")

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        hub.start()
        try:
            yield
        finally:
            await asyncio.to_thread(residency.embedder.close)
            await hub.stop()

    routes: list[BaseRoute] = [
        WebSocketRoute("/ws", socket),
        *(Served(path, health, gives=dict[str, str | int | None], open=True) for path in _SIGNS_OF_LIFE),
        Served("/load", load, gives=dict[str, int]),
        Served("/metrics", metrics),
        Served("/openapi.json", described, gives=dict[str, Any]),
        *(route for dialect in DIALECTS for route in dialect(service).routes()),
    ]
    document = OpenApi(routes, config.version())
    handlers: Any = {HTTPException: not_served, Exception: failed}
    # Around all of it: an allowed page is to read the response to an unexpected error, too.
    guarded = GateMiddleware(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), gate)
    return AccessMiddleware(guarded, serving.visits, logs)

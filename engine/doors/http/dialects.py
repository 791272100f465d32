"""Dialects of HTTP that are spoken here. A new one is a folder beside this file and its line in :data:`DIALECTS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.routing import Route

from engine.doors.http.ollama.routes import OllamaRoutes
from engine.doors.http.openai.routes import OpenAIRoutes
from engine.doors.http.service import HttpService


class Dialect(Protocol):
    """The addresses of one interface: each reads its own records, asks the service, and writes its own."""

    def routes(self) -> list[Route]: ...


DIALECTS: list[Callable[[HttpService], Dialect]] = [OpenAIRoutes, OllamaRoutes]

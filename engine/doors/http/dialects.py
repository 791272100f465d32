"""Dialects of HTTP that are spoken here. A new one is a folder beside this file, and registered here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.routing import BaseRoute

from engine.doors.http.anthropic.routes import AnthropicRoutes
from engine.doors.http.cohere.routes import CohereRoutes
from engine.doors.http.llamacpp.routes import LlamaCppRoutes
from engine.doors.http.ollama.routes import OllamaRoutes
from engine.doors.http.openai.routes import OpenAIRoutes
from engine.doors.http.openai.tokens import TokenRoutes
from engine.doors.http.rerank.routes import RerankRoutes
from engine.doors.http.responses.decisions import DecisionRoutes
from engine.doors.http.responses.routes import ResponsesRoutes
from engine.doors.http.service import HttpService


class Dialect(Protocol):
    """The addresses of one interface: each reads its own records, asks the service, and writes its own."""

    def routes(self) -> Sequence[BaseRoute]: ...


DIALECTS: list[Callable[[HttpService], Dialect]] = []


def register(dialect: Callable[[HttpService], Dialect]) -> None:
    """Servers that are started from now on speak the dialect too."""
    DIALECTS.append(dialect)


register(AnthropicRoutes)
register(OpenAIRoutes)
register(ResponsesRoutes)
register(DecisionRoutes)
register(TokenRoutes)
register(RerankRoutes)
register(OllamaRoutes)
register(LlamaCppRoutes)
register(CohereRoutes)

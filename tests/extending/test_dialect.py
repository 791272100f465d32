"""A dialect of HTTP in one file: plain text in, plain text out as it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine.doors.http.dialects import DIALECTS
from engine.doors.http.service import HttpService, StreamedAnswer
from engine.protocol import Delta
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import Stream
from engine.services.residency import Lease
from tests.engine.doors.network.conftest import Running


class PlainText:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        return [Route("/plain", self.plain, methods=["POST"])]

    async def plain(self, request: Request) -> Response:
        async def answer(body: bytes, use: Lease) -> Response:
            await use.model("")
            prompt, _ = await self._service.prompt(AnswerRequest(body.decode()), self._service.loaded(""))
            stream = self._service.begin([prompt])
            return StreamedAnswer(_texts(stream), "text/plain", {}, stream, use)

        return self._service.stranger(request) or await self._service.serve(request, answer, _refused)


async def _texts(stream: Stream) -> AsyncIterator[bytes]:
    async for message in stream.messages():
        if isinstance(message, Delta):
            yield message.text.encode()


def _refused(error: Exception) -> Response:
    return PlainTextResponse(str(error), 400)


def test_a_dialect_of_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.doors.app.DIALECTS", [*DIALECTS, PlainText])
    running = Running()
    try:
        with running.http() as http:
            assert sorted(http.post("/plain", content="abc").text) == ["a", "b", "c"]
            assert "the prompt has" in http.post("/plain", content="abc" * 100).text
            assert http.post("/plain", content="abc", headers={"Authorization": ""}).status_code == 401
    finally:
        running.stop()

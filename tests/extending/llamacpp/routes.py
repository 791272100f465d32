"""HTTP in the shapes of llama.cpp's server: /completion, whole or as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.doors.http.fields import BadField
from engine.doors.http.service import HttpService, StreamedAnswer
from engine.protocol import Delta, Sampling
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import Stream
from engine.services.residency import Lease


class CompletionIn(msgspec.Struct):
    prompt: str
    n_predict: int = -1
    temperature: float = 0.8
    stop: list[str] = []
    stream: bool = False


class CompletionOut(msgspec.Struct):
    content: str
    stop: bool


class LlamaCppRoutes:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        return [Route("/completion", self.completion, methods=["POST"])]

    async def completion(self, request: Request) -> Response:
        async def answer(body: bytes, use: Lease) -> Response:
            await use.model("")
            try:
                asked = msgspec.json.decode(body, type=CompletionIn)
            except msgspec.DecodeError as error:
                raise BadField(None, f"The request was not understood: {error}.") from error
            most = asked.n_predict if asked.n_predict >= 0 else None
            sampling = Sampling(temperature=asked.temperature, max_tokens=most, stop=asked.stop)
            prompt, _ = await self._service.prompt(AnswerRequest(asked.prompt, sampling), self._service.loaded(""))
            stream = self._service.begin([prompt])
            if asked.stream:
                return StreamedAnswer(_events(stream), "text/event-stream", {}, stream, use)
            text = "".join([part async for part in _texts(stream)])
            return Response(msgspec.json.encode(CompletionOut(text, True)), media_type="application/json")

        return self._service.stranger(request) or await self._service.serve(request, answer, _refused)


async def _texts(stream: Stream) -> AsyncIterator[str]:
    async for message in stream.messages():
        if isinstance(message, Delta):
            yield message.text


async def _events(stream: Stream) -> AsyncIterator[bytes]:
    async for text in _texts(stream):
        yield b"data: " + msgspec.json.encode(CompletionOut(text, False)) + b"\n\n"
    yield b"data: " + msgspec.json.encode(CompletionOut("", True)) + b"\n\n"


def _refused(error: Exception) -> Response:
    return JSONResponse({"error": {"code": 400, "message": str(error), "type": "invalid_request_error"}}, 400)

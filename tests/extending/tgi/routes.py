"""HTTP in the shapes of Hugging Face's Text Generation Inference: /generate, and /generate_stream with its events."""

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


class Parameters(msgspec.Struct, frozen=True):
    max_new_tokens: int | None = None
    temperature: float | None = None
    stop: list[str] = []


class GenerateIn(msgspec.Struct):
    inputs: str
    parameters: Parameters = Parameters()


class TokenOut(msgspec.Struct):
    text: str


class PartOut(msgspec.Struct):
    token: TokenOut
    generated_text: str | None = None


class TgiRoutes:
    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        return [Route(path, self.generate, methods=["POST"]) for path in ("/generate", "/generate_stream")]

    async def generate(self, request: Request) -> Response:
        async def answer(body: bytes, use: Lease) -> Response:
            await use.model("")
            try:
                asked = msgspec.json.decode(body, type=GenerateIn)
            except msgspec.DecodeError as error:
                raise BadField(None, f"The request was not understood: {error}.") from error
            said = asked.parameters
            sampling = Sampling(temperature=said.temperature, max_tokens=said.max_new_tokens, stop=said.stop)
            prompt, _ = await self._service.prompt(AnswerRequest(asked.inputs, sampling), self._service.loaded(""))
            stream = self._service.begin([prompt])
            if request.url.path == "/generate_stream":
                return StreamedAnswer(_events(stream), "text/event-stream", {}, stream, use)
            text = "".join([part async for part in _texts(stream)])
            return JSONResponse({"generated_text": text})

        return self._service.stranger(request) or await self._service.serve(request, answer, _refused)


async def _texts(stream: Stream) -> AsyncIterator[str]:
    async for message in stream.messages():
        if isinstance(message, Delta):
            yield message.text


async def _events(stream: Stream) -> AsyncIterator[bytes]:
    whole = ""
    async for text in _texts(stream):
        whole += text
        yield b"data: " + msgspec.json.encode(PartOut(TokenOut(text))) + b"\n\n"
    yield b"data: " + msgspec.json.encode(PartOut(TokenOut(""), whole)) + b"\n\n"


def _refused(error: Exception) -> Response:
    return JSONResponse({"error": str(error), "error_type": "validation"}, 422)

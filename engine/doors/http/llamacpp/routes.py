"""HTTP in llama.cpp's shape for editors: /infill, the text between two others, whole or as server-sent events.

Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import decoded
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.sampling import SamplingIn
from engine.doors.http.service import HttpService, StreamedAnswer, adapter_of, json_response, told, while_there
from engine.doors.security import error_body, error_response
from engine.protocol import Delta, Finished, Message
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import Stream
from engine.services.residency import Lease
from engine.text.infill import OtherFile


class ExtraFile(msgspec.Struct):
    text: str
    filename: str = "file"


class InfillIn(SamplingIn, kw_only=True):
    """``prompt`` is the beginning of the gap, as far as it is written. The last five say how llama.cpp samples, cuts
    and answers, and change nothing here."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {}

    input_prefix: str
    input_suffix: str
    prompt: str = ""
    input_extra: list[ExtraFile] = []
    model: str = ""
    stream: bool = False
    samplers: list[str] | str | None = None
    n_indent: int | None = None
    response_fields: list[str] | None = None
    t_max_prompt_ms: float | None = None
    t_max_predict_ms: float | None = None


class InfillOut(msgspec.Struct, omit_defaults=True):
    """A part of the text, or all of it with the figures of its end."""

    content: str
    stop: bool
    model: str = ""
    stop_type: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    tokens_cached: int = 0


class LlamaCppRoutes:
    """The dialect of editors' plug-ins that know llama.cpp's server."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        streams = Streamed("text/event-stream", InfillOut)
        return [
            Served("/infill", self._service.serving(self._answer, _refused), ["POST"], [InfillIn], InfillOut, streams)
        ]

    async def _answer(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, InfillIn)
        await while_there(request, use.model(wanted.model))
        loaded = self._service.loaded(wanted.model)
        wanted.check(loaded.card.vocabulary)
        sampling = wanted.base_sampling(wanted.max_tokens, None)
        asked = AnswerRequest("", sampling, adapter=adapter_of(loaded, wanted.model))
        files = [OtherFile(each.filename, each.text) for each in wanted.input_extra]
        prompt = self._service.infill(asked, wanted.input_prefix + wanted.prompt, wanted.input_suffix, loaded, files)
        name = loaded.card.name

        async def write(stream: Stream) -> Response:
            if wanted.stream:
                return StreamedAnswer(_events(stream, name), "text/event-stream", {}, stream, use)
            return json_response(await while_there(request, _whole(stream, name)))

        return await self._service.answer(request, [prompt], wanted.stream, write)


def _part(message: Message, model: str) -> InfillOut | None:
    """The part of an answer that a message has, the last one with its figures."""
    match message:
        case Delta(text=text) if text:
            return InfillOut(text, False)
        case Finished(usage=usage):
            ended = "eos" if message.reason == "stop" else "limit"
            counts = usage.generated_tokens, usage.prompt_tokens, usage.cached_tokens
            return InfillOut("", True, model, ended, *counts)
    return None


async def _whole(stream: Stream, model: str) -> InfillOut:
    """The whole text. Raises Refused."""
    text, last = "", InfillOut("", True)
    async for message in stream.messages():
        if message is not None and (part := _part(message, model)) is not None:
            text, last = text + part.content, part
    return msgspec.structs.replace(last, content=text)


async def _events(stream: Stream, model: str) -> AsyncIterator[bytes]:
    def write(message: Message) -> list[bytes]:
        part = _part(message, model)
        return [] if part is None else [_event(part)]

    try:
        async for event in told(stream, write, lambda: [b": keep-alive\n\n"]):
            yield event
    except Refused as refused:
        yield _event(error_body(refusal_of(refused)))


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _refused(error: Exception) -> Response:
    return error_response(refusal_of(error, "input_prefix", InfillIn.__struct_fields__))

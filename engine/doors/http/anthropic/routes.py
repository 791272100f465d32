"""HTTP in the shapes of Anthropic's Messages: /v1/messages, whole and as events, and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.doors.http.anthropic.types import CountIn, MessageOut, MessagesIn
from engine.doors.http.anthropic.writer import Ending, MessageWriter, error_of, events, whole
from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import decoded
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.service import (
    HttpService,
    StreamedAnswer,
    adapter_of,
    cut_header,
    json_response,
    notice_header,
    while_there,
)
from engine.doors.security import HttpRefusal
from engine.services.answers.answering import tokenised
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import Stream
from engine.services.residency import Lease

EVENTS = Streamed("text/event-stream", dict[str, Any])
"""Each with a type of its own."""
_PARAMS = {"response_format": "output_config.format", "reasoning_effort": "output_config.effort"}
"""Fields by their names in OpenAI's interface."""


class AnthropicRoutes:
    """The dialect of Anthropic's clients."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        return [
            Served("/v1/messages", self._serving(self._answer), ["POST"], [MessagesIn], MessageOut, EVENTS),
            Served("/v1/messages/count_tokens", self._serving(self._count), ["POST"], [CountIn], dict[str, int]),
        ]

    def _serving(
        self, answer: Callable[[Request, bytes, Lease], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        return self._service.serving(answer, _refused, _error)

    async def _answer(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, MessagesIn)
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._service.loaded(wanted.model)
        wanted.check(loaded.card.vocabulary)
        assert loaded.files is not None
        adapter = adapter_of(loaded, wanted.model)
        asked = AnswerRequest(
            wanted.conversation(),
            wanted.sampling(),
            wanted.wanted_thinking,
            form=wanted.form,
            adapter=adapter,
            structured=wanted.structured,
            service=wanted.service,
        )
        prompt, cut = await while_there(request, self._service.prompt(asked, loaded))
        headers = notice_header(loaded, asked.tools) | ({} if cut is None else cut_header(cut))
        ending = Ending(wanted.stop_sequences, loaded.card.eos_ids, loaded.files.tokenizer)
        writer = MessageWriter(adapter or loaded.card.name, ending)

        async def write(stream: Stream) -> Response:
            if wanted.stream:
                return StreamedAnswer(events(stream, writer), "text/event-stream", headers, stream, use)
            return json_response(await while_there(request, whole(stream, writer)), headers)

        return await self._service.answer(request, [prompt], wanted.stream, write)

    async def _count(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted = decoded(body, CountIn)
        await while_there(request, use.model(wanted.model))
        self._service.loaded(wanted.model)
        prompt = await tokenised(self._service.hub, wanted.conversation(), wanted.wanted_thinking, wanted.form)
        return json_response({"input_tokens": len(prompt.ids)})


def _refused(error: Exception) -> Response:
    refusal = refusal_of(error, "messages")
    return _error(refusal._replace(param=_PARAMS.get(refusal.param or "", refusal.param)))


def _error(refusal: HttpRefusal) -> JSONResponse:
    return JSONResponse(error_of(refusal), status_code=refusal.status)

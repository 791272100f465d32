"""HTTP in the shapes of OpenAI's Responses: /v1/responses, whole and as events, also by a websocket, what was answered
before, and /v1/responses/compact."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from engine.doors.access import visit_of
from engine.doors.http import template
from engine.doors.http.errors import FAILURES, refusal_of
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.pictures import fetch_pictures
from engine.doors.http.responses.compaction import CompactedResponse, CompactIn, compacted
from engine.doors.http.responses.items import ItemIn, check_outputs, conversation, pictured
from engine.doors.http.responses.socket import SOCKET, ResponsesSocket
from engine.doors.http.responses.store import Owner, ResponseStore
from engine.doors.http.responses.types import (
    ENCRYPTED,
    DeletedResponse,
    InputItems,
    ResponseCreate,
    ResponseOut,
    ResponsesIn,
)
from engine.doors.http.responses.writer import ResponseWriter, events, whole
from engine.doors.http.service import (
    HttpService,
    StreamedAnswer,
    adapter_of,
    cut_header,
    json_response,
    notice_header,
    while_there,
)
from engine.doors.http.timings import AnswerPace
from engine.doors.security import error_response
from engine.protocol.access import ServiceName
from engine.services.answers.overflow import reserve
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.residency import Lease
from engine.text.prompt import PromptForm

EVENTS = Streamed("text/event-stream", dict[str, Any])
"""Each with a type of its own."""
MOST_RUNNING = 64
"""Responses that are written in the background at once."""
PAGE, MOST_PAGE = 20, 100
"""Items that are listed at once, unless it is said how many."""
_PARAMS = {"response_format": "text.format", "reasoning_effort": "reasoning.effort", "max_tokens": "max_output_tokens"}
"""Fields by their names in OpenAI's other interface."""
_Answer = Callable[[Request, bytes, Lease], Awaitable[Response]]


class _Prepared(NamedTuple):
    """What is asked of the engine for a request, and who writes the response. ``before`` are the items that the request
    goes on from, ``given`` those of its input."""

    before: list[ItemIn]
    given: list[ItemIn]
    prompt: PromptRequest
    writer: ResponseWriter
    headers: dict[str, str]


class ResponsesRoutes:
    """The newer dialect of OpenAI's clients, Codex among them."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._store = ResponseStore()
        self._running: dict[str, asyncio.Task[None]] = {}
        """Responses that are written in the background, by their names."""

    def routes(self) -> list[BaseRoute]:
        """Routes below /v1 or not, as clients add to an address or do not."""
        return [
            route
            for base in ("/v1/responses", "/responses")
            for route in (
                *(Served(path, self._serving(self._answer), ["POST"], [ResponsesIn], ResponseOut, EVENTS)
                  for path in (base, f"{base}/")),
                WebSocketRoute(base, self._socket),
                Served(f"{base}/compact", self._serving(self._compact), ["POST"], [CompactIn], CompactedResponse),
                Served(f"{base}/{{id}}", self._serving(self._get), gives=ResponseOut),
                Served(f"{base}/{{id}}", self._serving(self._delete), ["DELETE"], gives=DeletedResponse),
                Served(f"{base}/{{id}}/cancel", self._serving(self._cancel), ["POST"], gives=ResponseOut),
                Served(f"{base}/{{id}}/input_items", self._serving(self._input_items), gives=InputItems),
            )
        ]  # fmt: skip

    def _serving(self, answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
        return self._service.serving(answer, _refused)

    async def _socket(self, socket: WebSocket) -> None:
        if (refusal := self._service.strange_socket(socket)) is not None:
            await socket.send_denial_response(refusal)
            return
        session = ResponsesSocket(socket)
        try:
            await session.run()
        finally:
            self._store.leave(session.name)

    async def _answer(self, request: Request, body: bytes, use: Lease) -> Response:
        owner = _owner(request)
        wanted = decoded(body, ResponseCreate if owner.socket else ResponsesIn)
        try:
            return await self._begun(request, wanted, owner, use)
        except FAILURES:
            self._store.forget(owner, wanted.previous_response_id or "")
            raise

    async def _begun(self, request: Request, wanted: ResponsesIn, owner: Owner, use: Lease) -> Response:
        _, given, prompt, writer, headers = await self._prepared(request, wanted, owner, use)
        response = writer.response

        if wanted.enable_response_messages:
            response.input_messages = [writer.raw(prompt.command.prompt_ids)]

        def done(response: ResponseOut) -> None:
            if response.status == "failed" and not response.background:
                self._store.forget(owner, response.previous_response_id or "")
            else:
                self._store.keep(owner, given, response)

        if wanted.background:
            if len(self._running) >= MOST_RUNNING:
                text = f"{MOST_RUNNING} responses are written in the background. Wait until one has ended."
                raise Refused("rate_limit_exceeded", text)
            done(response)
            queued = json_response(response, headers)
            service = visit_of(request.scope).service
            task = asyncio.create_task(self._write(wanted, prompt, writer, done, service))
            self._running[response.id] = task
            task.add_done_callback(lambda _: self._running.pop(response.id))
            return queued

        async def write(stream: Stream) -> Response:
            if wanted.stream:
                pace = AnswerPace(bool(wanted.return_progress), bool(wanted.timings_per_token))
                return StreamedAnswer(events(stream, writer, done, pace), "text/event-stream", headers, stream, use)
            return json_response(await while_there(request, whole(stream, writer, done)), headers)

        return await self._service.answer(request, [prompt], bool(wanted.stream), write)

    async def _prepared(self, request: Request, wanted: ResponsesIn, owner: Owner, use: Lease) -> _Prepared:
        """Raises an exception of FAILURES."""
        previous = wanted.previous_response_id
        before = self._store.conversation(owner, previous) if previous else []
        given = self._store.resolved(owner, wanted.items)
        if previous:
            check_outputs(before, given)
        await while_there(request, use.model(wanted.model, wanted.ttl))
        loaded = self._service.loaded(wanted.model)
        wanted.check(loaded.card.vocabulary)
        assert loaded.files is not None
        items, tools, adapter = wanted.placed(before, given), wanted.tool_config(), adapter_of(loaded, wanted.model)
        if self._service.fetches:
            await while_there(request, fetch_pictures(pictured(items)))
        asked = AnswerRequest(
            conversation(items),
            wanted.sampling(),
            wanted.wanted_thinking,
            wanted.wanted_overflow,
            PromptForm(variables=template.variables(wanted.chat_template_kwargs), tools=tools),
            adapter=adapter,
            structured=wanted.structured(),
            service=wanted.service,
        )
        prompt, cut = await while_there(request, self._service.prompt(asked, loaded))
        notices = wanted.notices(tools, loaded.files.tools.holds)
        headers = notice_header(loaded, tools, notices) | ({} if cut is None else cut_header(cut))
        response = wanted.begun(adapter or loaded.card.name, loaded.card.sampling, notices)
        hides = wanted.includes(ENCRYPTED)
        writer = ResponseWriter(response, loaded.files.tokenizer, wanted.client_tools, hides)
        return _Prepared(before, given, prompt, writer, headers)

    async def _compact(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted, owner = decoded(body, CompactIn), _owner(request)
        await while_there(request, use.model(wanted.model, wanted.ttl))
        if wanted.max_output_tokens is None:  # a summary is to leave room for what comes after it
            wanted.max_output_tokens = reserve(self._service.loaded(wanted.model).card.context, None)
        before, given, prompt, writer, headers = await self._prepared(request, wanted, owner, use)

        async def write(stream: Stream) -> Response:
            answer = await while_there(request, whole(stream, writer, lambda _: None))
            return json_response(compacted([*before, *given], answer), headers)

        return await self._service.answer(request, [prompt], False, write)

    async def _write(
        self,
        wanted: ResponsesIn,
        prompt: PromptRequest,
        writer: ResponseWriter,
        done: Callable[[ResponseOut], None],
        service: ServiceName,
    ) -> None:
        """Write a response that its client comes back for."""
        response, stream = writer.response, None
        with self._service.residency.use() as use:
            try:
                await use.model(wanted.model, wanted.ttl)
                stream = self._service.begin([prompt], service)
                await stream.begin()
                response.status = "in_progress"
                done(response)
                await whole(stream, writer, lambda _: None)
            except Refused as refused:
                writer.fail(refusal_of(refused))
            except asyncio.CancelledError:
                writer.cancel()
            finally:
                if stream is not None:
                    stream.leave()
        done(response)

    async def _stopped(self, id: str) -> None:
        """End the response if it is written in the background."""
        if (task := self._running.get(id)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _cancel(self, request: Request, body: bytes, use: Lease) -> Response:
        owner, id = _owner(request), request.path_params["id"]
        if not msgspec.json.decode(self._store.find(owner, id).response)["background"]:
            raise BadField("id", "Cannot cancel a synchronous response. Close its connection while it is written.")
        await self._stopped(id)
        return await self._get(request, body, use)

    async def _get(self, request: Request, body: bytes, use: Lease) -> Response:
        if request.query_params.get("stream") == "true":
            raise BadField("stream", "A response that is stored is not streamed again. Leave stream out.")
        stored = self._store.find(_owner(request), request.path_params["id"])
        return Response(stored.response, media_type="application/json")

    async def _delete(self, request: Request, body: bytes, use: Lease) -> Response:
        owner, id = _owner(request), request.path_params["id"]
        self._store.find(owner, id)
        await self._stopped(id)
        self._store.delete(owner, id)
        return json_response(DeletedResponse(request.path_params["id"]))

    async def _input_items(self, request: Request, body: bytes, use: Lease) -> Response:
        items = self._store.input(_owner(request), request.path_params["id"])
        return json_response(_page(items, request.query_params))


def _owner(request: Request) -> Owner:
    return Owner(visit_of(request.scope).name, request.scope.get(SOCKET, ""))


def _page(items: list[ItemIn], query: Mapping[str, str]) -> InputItems:
    """The items that a query asks for, the newest first unless it says otherwise. Raises BadField."""
    limit, order, after = query.get("limit", str(PAGE)), query.get("order", "desc"), query.get("after")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST_PAGE):
        raise BadField("limit", f"limit is 1 to {MOST_PAGE}. Correct it, or leave it out.")
    if order not in ("asc", "desc"):
        raise BadField("order", "order is asc or desc. Correct it, or leave it out.")
    found = items if order == "asc" else items[::-1]
    if after is not None:
        place = next((number for number, item in enumerate(found) if item.id == after), None)
        if place is None:
            raise BadField("after", "The response has no such input item. Name one of those that were listed.")
        found = found[place + 1 :]
    shown = found[: int(limit)]
    first, last = (shown[0].id, shown[-1].id) if shown else (None, None)
    return InputItems(shown, len(found) > len(shown), first, last)


def _refused(error: Exception) -> Response:
    refusal = refusal_of(error, "input", ResponsesIn.__struct_fields__)
    return error_response(refusal._replace(param=_PARAMS.get(refusal.param or "", refusal.param)))

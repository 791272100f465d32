"""HTTP in the shapes of OpenAI's Responses: /v1/responses, whole and as events, and what was answered before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.doors.access import visit_of
from engine.doors.http.errors import refusal_of
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.openapi import Served, Streamed
from engine.doors.http.pictures import fetch_pictures
from engine.doors.http.responses.items import ItemIn, conversation, pictured
from engine.doors.http.responses.store import ResponseStore
from engine.doors.http.responses.types import ENCRYPTED, DeletedResponse, InputItems, ResponseOut, ResponsesIn
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
from engine.doors.http.timings import Pace
from engine.doors.security import error_response
from engine.services.answers.request import AnswerRequest
from engine.services.answers.stream import Stream
from engine.services.residency import Lease
from engine.text.prompt import PromptForm

EVENTS = Streamed("text/event-stream", dict[str, Any])
"""Each with a type of its own."""
PAGE, MOST_PAGE = 20, 100
"""Items that are listed at once, unless it is said how many."""
_PARAMS = {"response_format": "text.format", "reasoning_effort": "reasoning.effort", "max_tokens": "max_output_tokens"}
"""Fields by their names in OpenAI's other interface."""
_Answer = Callable[[Request, bytes, Lease], Awaitable[Response]]


class ResponsesRoutes:
    """The newer dialect of OpenAI's clients, Codex among them."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._store = ResponseStore()

    def routes(self) -> list[Route]:
        """Routes below /v1 or not, as clients add to an address or do not."""
        return [
            route
            for base in ("/v1/responses", "/responses")
            for route in (
                *(Served(path, self._serving(self._answer), ["POST"], [ResponsesIn], ResponseOut, EVENTS)
                  for path in (base, f"{base}/")),
                Served(f"{base}/{{id}}", self._serving(self._get), gives=ResponseOut),
                Served(f"{base}/{{id}}", self._serving(self._delete), ["DELETE"], gives=DeletedResponse),
                Served(f"{base}/{{id}}/input_items", self._serving(self._input_items), gives=InputItems),
            )
        ]  # fmt: skip

    def _serving(self, answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
        return self._service.serving(answer, _refused)

    async def _answer(self, request: Request, body: bytes, use: Lease) -> Response:
        wanted, owner = decoded(body, ResponsesIn), visit_of(request.scope).name
        previous = wanted.previous_response_id
        before = self._store.conversation(owner, previous) if previous else []
        given = self._store.resolved(owner, wanted.items)
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
            PromptForm(tools=tools),
            adapter=adapter,
            structured=wanted.structured(),
        )
        prompt, cut = await while_there(request, self._service.prompt(asked, loaded))
        notices = wanted.notices(tools, loaded.files.tools.holds)
        headers = notice_header(loaded, tools, notices) | ({} if cut is None else cut_header(cut))
        response = wanted.begun(adapter or loaded.card.name, loaded.card.sampling, notices)
        hides = wanted.includes(ENCRYPTED)
        writer = ResponseWriter(response, loaded.files.tokenizer, wanted.client_tools, hides)

        def done(response: ResponseOut) -> None:
            if response.store:
                self._store.keep(owner, given, response)

        async def write(stream: Stream) -> Response:
            if wanted.stream:
                pace = Pace(bool(wanted.return_progress), bool(wanted.timings_per_token))
                return StreamedAnswer(events(stream, writer, done, pace), "text/event-stream", headers, stream, use)
            return json_response(await while_there(request, whole(stream, writer, done)), headers)

        return await self._service.answer(request, [prompt], bool(wanted.stream), write)

    async def _get(self, request: Request, body: bytes, use: Lease) -> Response:
        if request.query_params.get("stream") == "true":
            raise BadField("stream", "A response that is stored is not streamed again. Leave stream out.")
        stored = self._store.find(visit_of(request.scope).name, request.path_params["id"])
        return Response(stored.response, media_type="application/json")

    async def _delete(self, request: Request, body: bytes, use: Lease) -> Response:
        self._store.delete(visit_of(request.scope).name, request.path_params["id"])
        return json_response(DeletedResponse(request.path_params["id"]))

    async def _input_items(self, request: Request, body: bytes, use: Lease) -> Response:
        items = self._store.input(visit_of(request.scope).name, request.path_params["id"])
        return json_response(_page(items, request.query_params))


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

"""Service that the dialects of HTTP share: who may ask, whose model answers, streams that end with their client."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.decoding.scheduling.service import least_urgent
from engine.doors.access import Access, visit_of
from engine.doors.http.body import read_body
from engine.doors.http.errors import FAILURES
from engine.doors.http.turns import Conversations
from engine.doors.security import HttpRefusal, error_response
from engine.loading.parts.adapter import adapters_of
from engine.loop.admission import NO_MODEL
from engine.protocol import ContextCut, Message, ToolConfig
from engine.protocol.access import ServiceName
from engine.services.answers.overflow import too_long, window_of
from engine.services.answers.refused import Refused, shortened
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.stream import PromptRequest, Stream
from engine.services.answers.structured import held_in_thread
from engine.services.hub import EngineHub
from engine.services.residency import Lease, Residency
from engine.text.infill import OtherFile, infill_ids

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

CUT_HEADER, NOTICE_HEADER = "x-kvasir-context-cut", "x-kvasir-notice"
"""Say in a response what of the conversation the model does not see, and what else goes otherwise than asked for."""
KEEP_ALIVE_SECONDS = 10.0
"""How long a stream is silent, while a prompt waits or is read, before something says that it goes on."""
STOPPED = "The engine was stopped before the answer was whole. Start it again."

_T = TypeVar("_T")


class HttpService:
    """One engine behind all dialects. Everything is behind the token, or a named key."""

    def __init__(self, hub: EngineHub, residency: Residency, access: Access, fetches: bool = False) -> None:
        """``fetches``: pictures are fetched from the web addresses that requests name."""
        self.hub, self.residency, self.fetches = hub, residency, fetches
        self._access = access
        self._conversations = Conversations()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._stopping = False

    def stop(self) -> None:
        """The server stops: answers that are not whole yet end with an error that says so, and no other begins."""
        self._stopping = True
        self.residency.stop(Refused("stopping", STOPPED))
        for stream in list(self._streams):
            stream.fail("stopping", STOPPED)

    def stranger(self, request: Request, shape: Callable[[HttpRefusal], Response] = error_response) -> Response | None:
        """The response, in a dialect's ``shape``, for whoever has neither the token nor a key, or asks too much with
        it; None for others."""
        return _refused(self._access.refusal(request), shape)

    def strange_socket(self, socket: HTTPConnection) -> Response | None:
        """The response for a websocket of whoever has neither; None for others."""
        return _refused(self._access.stranger(socket), error_response)

    def serving(
        self,
        answer: Callable[[Request, bytes, Lease], Awaitable[Response]],
        refused: Callable[[Exception], Response],
        shape: Callable[[HttpRefusal], Response] = error_response,
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for whoever may ask, with the body of its request (:meth:`serve`)."""

        async def endpoint(request: Request) -> Response:
            refusal = self.stranger(request, shape)
            return refusal or await self.serve(request, partial(answer, request), refused)

        return endpoint

    async def serve(
        self,
        request: Request,
        answer: Callable[[bytes, Lease], Awaitable[Response]],
        refused: Callable[[Exception], Response],
    ) -> Response:
        """The response of ``answer`` to a request's body, with a lease of the model until it was sent.

        ``refused`` makes one of an exception of FAILURES.
        """
        response, use = Response(status_code=499), self.residency.use()
        try:
            response = await answer(await read_body(request), use)
        except FAILURES as error:
            response = refused(error)
            if isinstance(error, Refused) and error.code == "body_timeout":
                response.headers["connection"] = "close"  # else the rest of the body would be waited for
        except ClientDisconnect:
            pass
        finally:
            if not isinstance(response, StreamedAnswer):
                use.leave()
        return response

    def loaded(self, name: str) -> LoadedModel:
        """The model that is loaded. Raises :class:`Refused` for another name than its own and its adapters'."""
        loaded = self.hub.loaded
        if loaded is None or loaded.files is None:
            raise Refused("no_model", NO_MODEL)
        adapters = adapter_names(loaded)
        if name not in ("", loaded.card.name, loaded.command.path, *adapters):
            text = (
                f"The model {shortened(name)!r} is not loaded, but {loaded.card.name} is. Ask for that one, or start "
                "the server with --load-on-demand."
            )
            if adapters:
                known = ", ".join([loaded.card.name, *adapters])
                text = f"Neither the model nor an adapter is called {shortened(name)!r}. Ask for one of these: {known}."
            raise Refused("model_not_found", text)
        return loaded

    async def prompt(self, asked: AnswerRequest, loaded: LoadedModel) -> tuple[PromptRequest, ContextCut | None]:
        """The request for one prompt that goes on from what was said before, and what of it the model does not see.
        Raises :class:`Refused`, and :class:`engine.text.template.PromptError`."""
        found, heard = await self._conversations.prepared(self.hub, asked)
        checked_window(len(found.ids), asked.overflow == "window", loaded.card.context)
        return PromptRequest(asked.command(found.tokens, found.window), heard), found.context_cut("")

    async def prompt_of(self, asked: AnswerRequest, tokens: PromptTokens, loaded: LoadedModel) -> PromptRequest:
        """The request for a prompt that is there as ``tokens``. Raises :class:`Refused`."""
        window = checked_window(len(tokens.ids), asked.overflow == "window", loaded.card.context)
        grammar, _ = await held_in_thread(self.hub, loaded, asked.structured)
        return PromptRequest(asked.command(tokens._replace(grammar=grammar), window))

    async def infill(
        self, asked: AnswerRequest, prefix: str, suffix: str, loaded: LoadedModel, files: Sequence[OtherFile] = ()
    ) -> PromptRequest:
        """The request for the text between two others. Raises :class:`Refused` for a model that cannot fill in."""
        assert loaded.files is not None
        ids = infill_ids(loaded.files.tokenizer, prefix, suffix, files)
        if ids is None:
            text = (
                f"{loaded.card.name} was not trained to fill in text: its vocabulary has no marks for that. Use a "
                "model for code that was, or send the text before the gap alone."
            )
            raise Refused("no_infill", text)
        return await self.prompt_of(asked._replace(overflow="stop"), PromptTokens(ids), loaded)

    async def answer(
        self,
        request: Request,
        prompts: Sequence[PromptRequest],
        streams: bool,
        write: Callable[[Stream], Awaitable[_T]],
    ) -> _T:
        """Give the engine the prompts, and ``write`` the response once it has begun; one that ``streams`` begins
        while it is silent still. Raises :class:`Refused`, and ClientDisconnect."""
        visit = visit_of(request.scope)
        stream = visit.stream = self.begin(prompts, visit.service)
        try:
            await while_there(request, stream.begin(KEEP_ALIVE_SECONDS if streams else None))
            return await write(stream)
        except BaseException:
            stream.leave()
            raise

    def begin(self, prompts: Sequence[PromptRequest], service: ServiceName = "") -> Stream:
        """Give the engine the prompts, in the class of the visit or a less urgent one. Raises
        :class:`Refused` once the server stops."""
        if self._stopping:
            raise Refused("stopping", STOPPED)
        stream = Stream(self.hub, [_within(prompt, service) for prompt in prompts])
        self._streams.add(stream)
        return stream


class StreamedAnswer(StreamingResponse):
    """An answer while it is written; with it the ``stream`` and the lease end."""

    def __init__(
        self, body: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str], stream: Stream, use: Lease
    ) -> None:
        super().__init__(body, media_type=media_type, headers=dict(headers))
        self._stream, self._use = stream, use

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.leave()
            self._use.leave()


def _within(prompt: PromptRequest, service: ServiceName) -> PromptRequest:
    service = least_urgent(service, cast(ServiceName, prompt.command.service))
    return prompt._replace(command=prompt.command._replace(service=service))


def _refused(refusal: HttpRefusal | None, shape: Callable[[HttpRefusal], Response]) -> Response | None:
    if refusal is None:
        return None
    response = shape(refusal)
    response.headers.update(refusal.headers)
    return response


async def told(
    stream: Stream, write: Callable[[Message], Iterable[bytes]], waiting: Callable[[], Iterable[bytes]]
) -> AsyncIterator[bytes]:
    """What a dialect writes of each message of a stream, and what says that it goes on once nothing was written for
    KEEP_ALIVE_SECONDS: much comes that is not told, such as how far a prompt is read. Raises :class:`Refused`."""
    now = asyncio.get_running_loop().time
    spoke = now()
    async for message in stream.messages(KEEP_ALIVE_SECONDS):
        parts = [] if message is None else [*write(message)]
        if not parts and (message is None or now() - spoke >= KEEP_ALIVE_SECONDS):
            parts = [*waiting()]
        for part in parts:
            spoke = now()
            yield part


async def while_there(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of ``work``, which ends when the client goes away. Raises ClientDisconnect then."""
    gone = asyncio.create_task(_disconnected(request))
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([gone, task], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        for one in (gone, task):
            one.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def adapter_names(loaded: LoadedModel) -> list[str]:
    return [adapter.name for adapter in adapters_of(loaded)]


def adapter_of(loaded: LoadedModel, name: str) -> str:
    """The adapter of that name; "" where the model itself is meant."""
    return name if name in adapter_names(loaded) else ""


def purpose_of(loaded: LoadedModel) -> str:
    """What the model was made to do, as lists of models call it."""
    if loaded.ranks:
        return "rerank"
    return "completion" if loaded.pooling is None else "embedding"


def checked_window(tokens: int, slides: bool, context: int) -> int | None:
    """The window that slides over a prompt of ``tokens`` tokens, if one does. Raises :class:`Refused`."""
    if not slides and tokens >= context:
        raise too_long(tokens, context, False)
    return window_of(context) if slides else None


def cut_header(told: ContextCut) -> dict[str, str]:
    """The header that names what of the conversation the model does not see."""
    if told.policy == "window":
        return {CUT_HEADER: f"window; sinks={told.sinks}; window={told.window}; tokens={told.tokens}"}
    return {CUT_HEADER: f"drop_middle; first={told.first}; last={told.last}; tokens={told.tokens}"}


def notice_header(loaded: LoadedModel, tools: ToolConfig | None, notices: Sequence[str] = ()) -> dict[str, str]:
    """The header that says what this model lacks for what is asked of it, and further ``notices``."""
    assert loaded.files is not None
    lacks = "" if tools is None else loaded.files.tools.notice
    told = " ".join(notice for notice in (lacks, *notices) if notice)
    return {NOTICE_HEADER: told.encode("unicode_escape").decode()} if told else {}


def json_response(body: object, headers: Mapping[str, str] = {}) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json", headers=dict(headers))

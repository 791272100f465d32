"""One websocket client: its messages in, the engine's answers out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.base.fetching.errors import FetchFailed
from engine.base.stopping import Stop, Stopped
from engine.decoding.scheduling.service import INTERACTIVE
from engine.decoding.speculation.control.controller import FORCED
from engine.decoding.speculation.technique import drafting
from engine.decoding.telemetry.why.facts import LastPrompt
from engine.doors.websocket.cache_messages import CacheMessages
from engine.doors.websocket.calls import answered
from engine.doors.websocket.frames import decoded, refused_greeting
from engine.doors.websocket.subscriptions import Subscriptions
from engine.library import paths as config
from engine.library.paths import ModelNotFound
from engine.loading.model import LoadModel
from engine.loading.parts.adapter import cards
from engine.loop.events import Event, RequestEvent
from engine.protocol import (
    PROTOCOL,
    Adapters,
    Call,
    Cancel,
    CancelLoad,
    Compare,
    Counted,
    CountTokens,
    Delta,
    DescribePage,
    Error,
    Estimate,
    Finished,
    ForgetChat,
    Generate,
    Hello,
    ListAdapters,
    Load,
    LoadAdapter,
    MeasureCost,
    Message,
    Prefill,
    Set,
    Subscribe,
    Unload,
    UnloadAdapter,
    UnloadAfter,
    Welcome,
    Why,
    encode,
)
from engine.protocol.operations import ANSWER_REMOTELY
from engine.services.answers.answering import cancelled_before_start, prepared, request_message, tokenised
from engine.services.answers.compare import compare
from engine.services.answers.outbox import Outbox
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest
from engine.services.answers.turns import AnswerCollector, Turns
from engine.services.hub import EngineHub
from engine.services.operations import Context, OperationFailed, in_thread, perform
from engine.services.residency import Lease, Residency
from engine.services.why import why
from engine.text.prompt import PromptForm
from engine.text.template import PromptError

log = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
UNKNOWN_THINKING = (
    "Thinking goes on only with the model that began it, as long as that was not unloaded meanwhile. Ask again instead."
)
MAX_ACTIVE = 64
"""Requests that one client may have in progress."""


class Session:
    """Lives as long as its socket. Everything that it started ends with it."""

    def __init__(self, socket: WebSocket, hub: EngineHub, residency: Residency, token: str, context: Context) -> None:
        """``context``: of the operations that are called."""
        self._socket, self._hub, self._residency, self._token = socket, hub, residency, token
        self._context = context
        self._outbox = Outbox()
        self._turns = Turns()
        self._tasks: set[asyncio.Task[None]] = set()
        self._active: dict[str, _Active] = {}
        self._last_prompt: LastPrompt | None = None
        self._cache = CacheMessages(hub, self._outbox.put)
        self._subscriptions = Subscriptions(hub, self._cache, self._outbox.put)

    async def run(self) -> None:
        await self._socket.accept()
        try:
            refusal = await self._greet()
            if refusal is not None:
                await self._socket.send_text(encode(refusal))
                await self._socket.close(1008, refusal.code)
                return
            await self._serve()
        except (WebSocketDisconnect, asyncio.CancelledError):
            log.debug("a client went away")

    # --- greeting ------------------------------------------------------------------------------------------------

    async def _greet(self) -> Error | None:
        """Wait for the Hello; why the client is refused, if it is."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                frame = await self._frame()
        except TimeoutError:
            return Error(code="no_hello", message="No greeting came. Send hello with the token first.")
        return refused_greeting(frame, self._token)

    async def _welcome(self) -> Welcome:
        probes = self._hub.probes
        device, devices, models = await asyncio.gather(
            asyncio.to_thread(probes.device), asyncio.to_thread(probes.devices), asyncio.to_thread(config.known_models)
        )
        loaded = self._hub.loaded
        return Welcome(
            protocol=PROTOCOL,
            version=config.version(),
            device=msgspec.structs.replace(device, bandwidth=self._hub.bandwidth),
            catalogue=self._hub.engine.catalogue_state(),
            devices=devices,
            models=models,
            loaded=loaded.card if loaded is not None else None,
            adapters=cards(loaded),
            notice=os.environ.get("KVASIR_GPU_PACK_REASON", ""),
            drafters=[*(each.style for each in drafting()), FORCED],
        )

    # --- serving -------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._outbox.put(await self._welcome())
        stop_listening = self._hub.listen(self._on_broadcast)
        sender = asyncio.create_task(self._send())
        try:
            receiver = asyncio.create_task(self._receive())
            await asyncio.wait([sender, receiver], return_when=asyncio.FIRST_COMPLETED)
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)
        finally:
            stop_listening()
            for active in self._active.values():
                active.cancel(self._hub)
            for task in [sender, *self._tasks]:
                task.cancel()
            await asyncio.gather(sender, *self._tasks, self._subscriptions.end(), return_exceptions=True)

    async def _send(self) -> None:
        while True:
            message = await self._outbox.take()
            try:
                await self._socket.send_text(encode(message))
            except (WebSocketDisconnect, RuntimeError):
                return

    async def _receive(self) -> None:
        while True:
            await self._outbox.room()
            message = decoded(await self._frame())
            if isinstance(message, Error):
                self._outbox.put(message)
                continue
            try:
                self._handle(message)
            except Refused as refused:
                self._outbox.put(Error(code=refused.code, message=str(refused), id=getattr(message, "id", "")))

    async def _frame(self) -> str | bytes:
        """The next frame. Raises WebSocketDisconnect."""
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", 1000))
        text = event.get("text")
        return text if text is not None else event.get("bytes") or b""

    def _handle(self, message: Message) -> None:
        """Start what the message asks for. Raises :class:`Refused`."""
        hub = self._hub
        match message:
            case Generate(continues=True) if reason := _not_continued(message):
                raise Refused("bad_prompt", reason)
            case Generate(remote=None):
                self._begin(message.id, self._generate(message, self._enter(message.id)))
            case Generate():
                self._begin(message.id, self._answer_elsewhere(message, self._enter(message.id)), counts=False)
            case Compare():
                self._begin(message.id, self._compare(message, self._enter(message.id)))
            case Call():
                self._begin(message.id, self._call(message, self._enter(message.id)), counts=False)
            case Cancel(id=id):
                if (active := self._active.get(id)) is not None:
                    active.cancel(hub)
            case Set() | Unload() | LoadAdapter() | UnloadAdapter():
                hub.submit(message)
            case UnloadAfter(minutes=minutes):
                self._residency.set_unload_after(60 * minutes)
            case ListAdapters():
                self._outbox.put(Adapters(adapters=cards(hub.loaded)))
            case Load():
                self._begin("", self._load(message))
            case CancelLoad():
                hub.cancel_load()
            case CountTokens():
                self._begin(message.id, self._count(message))
            case Estimate():
                self._begin(message.id, self._estimate(message))
            case Subscribe():
                self._subscriptions.change(message)
            case DescribePage():
                self._begin(message.id, self._cache.describe(message))
            case MeasureCost():
                self._begin(message.id, self._measure(message))
            case Why():
                self._begin(message.id, self._why(message))
            case ForgetChat(chat=chat):
                self._turns.forget(chat)
                hub.submit(message)
            case Hello():
                raise Refused("already_greeted", "The greeting came twice. Send it once, as the first message.")

    def _begin(self, id: str, work: Coroutine[Any, Any, None], counts: bool = True) -> None:
        """Run one message's work; its failure is the client's answer and ends nothing else. ``counts``: meanwhile no
        model is idle."""

        async def guarded() -> None:
            try:
                with self._residency.use() if counts else contextlib.nullcontext():
                    await work
            except (Refused, PromptError, ModelNotFound) as error:
                code = {PromptError: "bad_prompt", ModelNotFound: "model_not_found"}.get(type(error), "")
                self._outbox.put(Error(code=getattr(error, "code", code), message=str(error), id=id))
            except Exception as error:
                log.exception("a message of a client failed")
                text = f"That failed inside the engine ({error}). Try again; the log has the details."
                self._outbox.put(Error(code="internal", message=text, id=id))

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- one message each ----------------------------------------------------------------------------------------

    def _enter(self, id: str) -> _Active:
        if id in self._active:
            raise Refused("duplicate_id", f"A request called {id!r} is in progress already. Use another name.")
        if len(self._active) >= MAX_ACTIVE:
            raise Refused("too_many", f"{MAX_ACTIVE} requests are in progress. Wait until one of them has ended.")
        active = self._active[id] = _Active()
        return active

    async def _generate(self, message: Generate, active: _Active) -> None:
        use = self._residency.use()
        try:
            await self._model(use, active)
            if active.cancelled:
                self._put_cancelled(message)
                return
            asked = AnswerRequest(
                message.prompt,
                message.sampling,
                message.thinking,
                message.overflow,
                n=message.n,
                optimisations=message.optimisations,
                chat=message.chat,
                form=PromptForm(prefills=message.continues, tools=message.tools),
                adapter=message.adapter,
                structured=message.structured,
                service=message.service or INTERACTIVE.name,
            )
            prompt = await prepared(self._hub, asked, partial(self._turns.line, message.parent))
            if message.continues and not prompt.tokens.written and _only_thought(message):
                raise Refused("not_continued", UNKNOWN_THINKING)
            if active.cancelled:
                self._put_cancelled(message)
                return
            ended = asyncio.Event()
            left = message.n
            first = AnswerCollector(prompt.text, prompt.continued.ids, message.prompt, message.parent, message.chat)
            if (cut := prompt.context_cut(message.id)) is not None:
                self._outbox.put(cut)

            def listener(event: RequestEvent) -> None:
                nonlocal left
                self._outbox.put(request_message(event, message.id, prompt.continued))
                match event:
                    case Delta(answer=0):
                        first.take(event)
                    case Prefill(cached=cached, total=total) if not message.service:
                        told = prompt.continued
                        before = self._last_prompt.tokens if self._last_prompt is not None else 0
                        self._last_prompt = LastPrompt(total, cached, told.diverged, told.divergence, before)
                    case Finished(answer=0):
                        self._turns.remember(message.id, first.finished(), prompt.tokenizer)
                left -= isinstance(event, Finished)
                if left <= 0 or isinstance(event, Error):
                    self._leave(message.id, active)
                    ended.set()

            active.name = self._hub.add(asked.command(prompt.tokens, prompt.window, message.id), listener)
            await ended.wait()
        finally:
            use.leave()
            self._leave(message.id, active)

    async def _answer_elsewhere(self, message: Generate, active: _Active) -> None:
        """Have another server answer. Raises :class:`Refused`."""
        stop, loop = Stop(), asyncio.get_running_loop()
        active.stop = stop.set
        if active.cancelled:
            stop.set()

        def work() -> Finished:
            def tell(delta: Delta) -> None:
                loop.call_soon_threadsafe(self._outbox.put, delta)

            return perform(ANSWER_REMOTELY, message, tell, self._context)

        try:
            ended = await in_thread(work, stop)
        except Stopped:
            ended = cancelled_before_start(message.id, 0)
        except (FetchFailed, OperationFailed) as error:
            raise Refused("remote_failed", str(error)) from error
        finally:
            self._leave(message.id, active)
        self._outbox.put(ended)

    async def _model(self, use: Lease, active: _Active) -> None:
        """Wait for the model; returns early where the request was cancelled meanwhile. Raises :class:`Refused`."""
        waiting = asyncio.ensure_future(use.model())
        active.stop = waiting.cancel
        try:
            await asyncio.wait([waiting])
        finally:
            active.stop = None
            waiting.cancel()
        error = None if waiting.cancelled() else waiting.exception()
        if error is not None and not active.cancelled:
            raise error

    def _put_cancelled(self, message: Generate) -> None:
        for answer in range(min(message.n, MAX_ACTIVE)):
            self._outbox.put(cancelled_before_start(message.id, answer))

    async def _measure(self, message: MeasureCost) -> None:
        with self._residency.use() as use:
            await use.model()
            await self._cache.measure(message, self._turns)

    async def _why(self, message: Why) -> None:
        self._outbox.put(await why(self._hub, message, self._last_prompt))

    def _leave(self, id: str, active: _Active) -> None:
        if self._active.get(id) is active:
            del self._active[id]

    async def _compare(self, message: Compare, active: _Active) -> None:
        use = self._residency.use()
        try:
            await self._model(use, active)
            if not active.cancelled:
                work = asyncio.ensure_future(compare(self._hub, message, self._outbox.put))
                active.stop = work.cancel
                with contextlib.suppress(asyncio.CancelledError):
                    self._outbox.put(await work)
                    return
            if active.cancelled:
                text = "The comparison was stopped before its end. Start it again to measure."
                self._outbox.put(Error(code="cancelled", message=text, id=message.id))
        finally:
            use.leave()
            self._leave(message.id, active)

    async def _call(self, message: Call, active: _Active) -> None:
        stop = Stop()
        active.stop = stop.set
        try:
            await answered(message, self._context, self._outbox, stop)
        finally:
            self._leave(message.id, active)

    async def _load(self, message: Load) -> None:
        path, draft = await asyncio.to_thread(config.resolve, message.model, message.draft)
        self._hub.submit(LoadModel(path, draft, message.options))

    async def _count(self, message: CountTokens) -> None:
        prompt = await tokenised(self._hub, message.prompt, message.thinking, PromptForm(tools=message.tools))
        kept: int | None = None
        if message.chat:
            with contextlib.suppress(TimeoutError):  # it is busy: the count alone is worth an answer
                kept = await self._hub.kept(prompt.ids, message.chat, message.adapter)
        self._outbox.put(Counted(id=message.id, tokens=len(prompt.ids), kept=kept))

    async def _estimate(self, message: Estimate) -> None:
        path, draft = await asyncio.to_thread(config.resolve, message.model, message.draft)
        switches = {spec.key: spec.value for spec in self._hub.engine.catalogue_state()}
        estimated = await asyncio.to_thread(
            self._hub.probes.estimate, path, draft, message.options, self._hub.loaded, switches
        )
        self._outbox.put(msgspec.structs.replace(estimated, id=message.id))

    def _on_broadcast(self, event: Event) -> None:
        if isinstance(event, Message):
            self._outbox.put(event)


class _Active:
    """A request, a comparison or an operation in progress."""

    def __init__(self) -> None:
        self.name = ""
        self.cancelled = False
        self.stop: Callable[[], object] | None = None

    def cancel(self, hub: EngineHub) -> None:
        self.cancelled = True
        if self.name:
            hub.cancel(self.name)
        if self.stop is not None:
            self.stop()


def _not_continued(message: Generate) -> str:
    """The reason an answer cannot go on from the last message, "" if it can."""
    if message.remote is not None:
        return "Another server may begin a new answer instead. Continue this one with a model of this computer."
    if isinstance(message.prompt, str) or not message.prompt or message.prompt[-1].role != "assistant":
        return "Only a message of the assistant can be continued, and the last one is not. Ask without continuing."
    return ""


def _only_thought(message: Generate) -> bool:
    """True if the answer that goes on was cut before it had text."""
    return not isinstance(message.prompt, str) and not message.prompt[-1].content

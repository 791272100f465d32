"""Residency of models: one that a request needs is loaded for it, an idle one is unloaded.

Everything here runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.library import paths as config
from engine.library.local import stored_models
from engine.loading.model import LoadModel
from engine.loading.parts.adapter import adapters_of
from engine.loop.events import Event
from engine.protocol import Error, LoadAdapter, Loaded, Loading, LoadOptions, Unload, Unloaded
from engine.services.answers.refused import Refused, shortened
from engine.services.embedder import Embedder
from engine.services.hub import EngineHub

if TYPE_CHECKING:
    from engine.loading.model import LoadedModel

log = logging.getLogger(__name__)


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Call a function in so many seconds, unless the timer is cancelled."""


class Policy(NamedTuple):
    """``unload_after``: seconds without a request after which the model is unloaded; 0: never.

    ``on_demand``: requests may name any model of this machine. It is loaded with ``options``, and ``default``, a path,
    where a request names none and none is loaded.
    """

    unload_after: float = 0.0
    on_demand: bool = False
    options: LoadOptions = LoadOptions()
    default: str = ""


class WantedModel(NamedTuple):
    """A model with all that is loaded with it, and the names that requests may call it by."""

    load: LoadModel
    adapters: tuple[LoadAdapter, ...] = ()
    names: tuple[str, ...] = ()


class NextStep(NamedTuple):
    """``admitted``: the places in the queue of those that go on now. ``load``: the path of the model to load now."""

    admitted: list[int]
    load: str = ""


def next_step(loaded: str, using: int, waiting: Sequence[str]) -> NextStep:
    """Decide what happens next. ``loaded`` is the path of the loaded model ("" for none), ``using`` the number of
    requests that it answers, ``waiting`` the paths that those in the queue want, the oldest first.

    The oldest decides. Where it wants the loaded model, all that want this one go on with it, whatever waits between
    them: so one load serves them all. Where it wants another, no younger one goes on, so that the running ones come to
    an end; then its model is loaded.
    """
    if not waiting:
        return NextStep([])
    if waiting[0] == loaded:
        return NextStep([place for place, path in enumerate(waiting) if path == loaded])
    return NextStep([], "" if using else waiting[0])


@dataclass(eq=False)
class _Ticket:
    """A request that waits for its model; with ``any`` one that is loaded meanwhile will do. ``ttl``: as of
    :meth:`Lease.model`."""

    wanted: WantedModel
    any: bool
    ttl: float | None
    admitted: asyncio.Future[None]


class Residency:
    """The models that requests need, one loaded at a time. Loads that a window asks for are not its business: they go
    to the engine at once, as they always did."""

    def __init__(self, hub: EngineHub, policy: Policy = Policy(), call_later: CallLater | None = None) -> None:
        self._hub, self._policy = hub, policy
        self._call_later = call_later
        self._unload_after = policy.unload_after
        self._ttl: float | None = None
        """The idle time that the request which had the model loaded asked for, in place of the policy's."""
        self._timer: Timer | None = None
        self._uses = 0
        self._users = 0
        """Of those uses, the ones whose model must stay."""
        self._waiting: list[_Ticket] = []
        self._loading: asyncio.Task[None] | None = None
        self._unloaded: WantedModel | None = None
        """What was unloaded for being idle (the engine may not have come to it yet), and comes back when needed."""
        self._idle: WantedModel | None = None
        """What the engine was last told to unload for being idle. A load that was on its way may have come first."""
        self._stopped: Refused | None = None
        self._pumped = asyncio.Event()
        """Set when somebody may have left, or a load may be over."""
        self._one_alone = asyncio.Lock()
        self._alone_over: asyncio.Event | None = None
        """What sets free those that are asked for while one has the engine alone; None: nobody has."""
        self.embedder = Embedder(hub.answers_on_processor, lambda: hub.driven)
        """Computes embeddings with a model of its own."""
        hub.embedder_bytes = lambda: self.embedder.bytes
        hub.listen(self._on_event)

    def use(self) -> Lease:
        """From now until the end of what is returned no model is unloaded for being idle."""
        return Lease(self)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """The engine for one caller: running answers end first, and later ones wait until this is left.

        A model that was unloaded for being idle is loaded again before. Raises :class:`Refused` if that fails.
        """
        with self.use():
            async with self._one_alone:
                with self.use() as use:
                    await use.model()
                over = self._alone_over = asyncio.Event()
                try:
                    while self._users or self._waiting or self._loading is not None:
                        self._pumped.clear()
                        await self._pumped.wait()
                    await self._hub.settled()
                    ttl = self._ttl
                    try:
                        yield
                    finally:
                        self._ttl = ttl
                finally:
                    self._alone_over = None
                    over.set()
                    self.embedder.look()

    def set_unload_after(self, seconds: float) -> None:
        """Another idle time, at once; 0: never."""
        self._unload_after = seconds
        self._rest()

    def unload(self) -> None:
        """Unload the model because a client asks for it; whatever runs is let to end, and it stays then."""
        loaded, busy = self._hub.loaded, self._hub.answering or self._loading is not None
        if loaded is not None and not busy and self._alone_over is None:
            self._let_go(loaded, "because a client asked")

    def stop(self, refusal: Refused) -> None:
        """The server stops: whoever waits is refused."""
        self._stopped = refusal
        if self._loading is not None:
            self._loading.cancel()
        if self._alone_over is not None:
            self._alone_over.set()
        self._cancel_timer()
        self._refuse(refusal)

    async def loadable(self) -> list[str]:
        """The names of the models that requests may have loaded, without the loaded one's own."""
        idle = self._unloaded
        names = [name for name in idle.names if name != idle.load.path] if idle is not None else []
        if self._policy.on_demand:
            present = self._present.load.path if self._present is not None else ""
            paths = await asyncio.to_thread(_stored)
            names += [name for name, path in paths.items() if path != present and not _says_the_same(name, path, paths)]
        return list(dict.fromkeys(names))

    # --- uses ----------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        self._uses += 1
        self._cancel_timer()

    def leave(self, user: bool) -> None:
        """``user``: it used the model."""
        self._uses -= 1
        self._users -= user
        self._pump()
        self._rest()

    async def admit(self, name: str | None, ttl: float | None) -> bool:
        """Wait until the model for :meth:`Lease.model` is loaded; True if one is held. Raises :class:`Refused`."""
        while True:
            while self._alone_over is not None and self._stopped is None:
                await self._alone_over.wait()
            wanted = await self._wanted(name)
            if wanted is None and self._hub.loaded is None:
                await self._hub.caught_up(None)  # a load that a window, or the server's start, asked for may go on
                wanted = await self._wanted(name)
            if self._alone_over is None or self._stopped is not None:
                break  # else what is loaded is none of its business
        if wanted is None:
            return False
        if self._stopped is not None:
            raise self._stopped
        ticket = _Ticket(wanted, not name, ttl, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        self._pump()
        try:
            await ticket.admitted
        except asyncio.CancelledError:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            elif not ticket.admitted.cancelled() and ticket.admitted.exception() is None:
                self._users -= 1  # it went away in the moment in which it was admitted
            self._pump()
            raise
        return True

    async def _wanted(self, name: str | None) -> WantedModel | None:
        """Resolve the model for a request that asks for ``name``; None if nothing can be loaded for it."""
        present = self._present
        if present is not None and (not name or name in present.names):
            return await asyncio.to_thread(_found_again, present) if present is self._unloaded else present
        if name is None or not self._policy.on_demand:
            return None
        path = (await asyncio.to_thread(_stored)).get(name, "") if name else self._policy.default
        if not path:
            text = (
                f"No model of this machine is called {shortened(name)!r}. GET /v1/models lists those that can be asked "
                "for."
            )
            raise Refused("model_not_found", text)
        try:
            found, draft = await asyncio.to_thread(config.resolve, path, None)
        except config.ModelNotFound as error:
            raise Refused("model_not_found", str(error)) from error
        return WantedModel(LoadModel(found, draft, self._policy.options), (), (name,))

    # --- loading and unloading -----------------------------------------------------------------------------------

    @property
    def _present(self) -> WantedModel | None:
        """Model that is loaded, or was until it was unloaded for being idle."""
        loaded = self._hub.loaded
        return self._unloaded if self._unloaded is not None or loaded is None else _of(loaded)

    @property
    def _loaded(self) -> str:
        """The path of the model that is loaded and stays so; "" for none."""
        loaded = self._hub.loaded
        return "" if loaded is None or self._unloaded is not None else loaded.command.path

    def _pump(self) -> None:
        """Let on whoever may go on, or begin the load that the oldest waits for."""
        self._pumped.set()
        if self._loading is not None or self._stopped is not None:
            return
        self._drop_those_gone()
        loaded = self._loaded
        paths = [loaded if ticket.any and loaded else ticket.wanted.load.path for ticket in self._waiting]
        step = next_step(loaded, self._users, paths)
        admitted = [self._waiting[place] for place in step.admitted]
        self._waiting = [ticket for ticket in self._waiting if ticket not in admitted]
        for ticket in admitted:
            self._users += 1
            ticket.admitted.set_result(None)
        if step.load:
            self._loading = asyncio.create_task(self._load(self._waiting[0]))

    async def _load(self, ticket: _Ticket) -> None:
        """Load what a ticket wants; who waits for it is let on, or hears why not."""
        wanted, sentence = ticket.wanted, ""

        def listener(event: Event) -> None:
            nonlocal sentence
            if isinstance(event, Error) and not event.id and event.code != "bad_option":
                sentence = sentence or event.message

        stop_listening = self._hub.listen(listener)
        try:
            await self._hub.caught_up(None)  # a load that was asked for before may be the same one
            if not self._serves(ticket):
                sentence = ""
                self._hub.submit(wanted.load)
                for adapter in wanted.adapters:
                    self._hub.submit(adapter)
                await self._hub.caught_up(None)
                if self._loaded == wanted.load.path:
                    self._ttl = ticket.ttl
        finally:
            stop_listening()
            self._loading = None
        if not self._serves(ticket):
            text = sentence or f"{wanted.names[0]} could not be loaded. The log has the details."
            self._refuse(Refused("load_failed", text), wanted.load.path)
        self._pump()
        self._rest()

    def _serves(self, ticket: _Ticket) -> bool:
        """Return True if the loaded model will do for this ticket."""
        return bool(self._loaded) and (ticket.any or self._loaded == ticket.wanted.load.path)

    def _drop_those_gone(self) -> None:
        """Tickets are cancelled at once when their clients go, and leave the queue only when their tasks run next."""
        self._waiting = [ticket for ticket in self._waiting if not ticket.admitted.done()]

    def _refuse(self, refusal: Refused, path: str = "") -> None:
        """End those that wait for a model that could not be loaded, or all of them."""
        self._drop_those_gone()
        refused = [
            ticket for ticket in self._waiting
            if not path or (path == ticket.wanted.load.path and not self._serves(ticket))
        ]  # fmt: skip
        self._waiting = [ticket for ticket in self._waiting if ticket not in refused]
        for ticket in refused:
            ticket.admitted.set_exception(refusal)

    def _rest(self) -> None:
        """Count the idle time from now on, where nothing is going on."""
        self._cancel_timer()
        seconds = self._unload_after if self._ttl is None else self._ttl
        if seconds and not self._uses and self._loaded and self._stopped is None:
            call_later = self._call_later or asyncio.get_running_loop().call_later
            self._timer = call_later(seconds, self._unload)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unload(self) -> None:
        """The idle time is over."""
        loaded = self._hub.loaded
        if self._hub.answering or self._loading is not None or loaded is None:
            self._rest()
            return
        after = self._unload_after if self._ttl is None else self._ttl
        self._let_go(loaded, f"after {_spelt(after)} without a request")

    def _let_go(self, loaded: LoadedModel, why: str) -> None:
        self._unloaded = self._idle = _of(loaded)
        reason = f"{loaded.card.name} was unloaded {why}. The next one loads it again."
        self._hub.submit(Unload(reason=reason, idle=True, path=loaded.command.path))

    def _on_event(self, event: Event) -> None:
        match event:
            case Loaded():
                self._unloaded = self._ttl = None
                self._pump()
            case Unloaded(idle=idle, reason=reason):
                self._unloaded = self._idle if idle else None
                if idle:
                    log.info("%s", reason)
                self._pump()
            case Loading() | Error():
                pass
            case _:
                return
        self._rest()


class Lease:
    """A request from its arrival to its end. To be left once, by ``with`` or by :meth:`leave`."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency
        self._has_model = self._left = False
        residency.enter()

    async def model(self, name: str | None = None, ttl: float | None = None) -> None:
        """Wait until the model of that name is loaded, and keep it so until the end of the use; "" is the one that is
        loaded, was unloaded for being idle, or is loaded where none is named, None the same but for the last.

        ``ttl``: seconds without a request after which it is unloaded, if it is loaded for this request. Does nothing
        for a model that is not loaded, is not being loaded, and cannot be for this request. Raises :class:`Refused` if
        the load failed, or there is no such model.
        """
        self._has_model = await self._residency.admit(name, ttl)

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._residency.leave(self._has_model)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()


def _of(loaded: LoadedModel) -> WantedModel:
    """Return the commands that would load this model again, with the names it answers to."""
    adapters = tuple(LoadAdapter(name=each.name, path=each.path) for each in adapters_of(loaded))
    names = (loaded.card.name, loaded.command.path, *(each.name for each in adapters))
    return WantedModel(loaded.command, adapters, names)


def _stored() -> dict[str, str]:
    """The paths of all models on this machine, by name (the first of a name counts) and by the paths themselves."""
    models = [model for model in stored_models(config.known_models(), config.bundled_folder()) if not model.missing]
    by_name = {model.name: model.path for model in reversed(models)}
    return {**by_name, **{model.path: model.path for model in models}}


def _found_again(wanted: WantedModel) -> WantedModel:
    """The same where its model, and a draft of its own, lie now: it may have been moved since it was loaded."""
    load = wanted.load
    if Path(load.path).exists():
        return wanted
    paths = _stored()
    fetched = "/".join(Path(load.path).parts[-2:])  # as ORGANISATION/NAME
    path = paths.get(fetched) or paths.get(wanted.names[0])
    if not path:
        return wanted  # the engine says what is wrong
    there = not load.draft or Path(load.draft).exists()
    return wanted._replace(load=load._replace(path=path, draft=load.draft if there else config.resolve(path, None)[1]))


def _says_the_same(name: str, path: str, paths: dict[str, str]) -> bool:
    """Return True if ``name`` is a path that has a name, too."""
    return name == path and any(other != path and of == path for other, of in paths.items())


def _spelt(seconds: float) -> str:
    number, unit = (seconds / 60, "minute") if seconds >= 60 else (seconds, "second")
    return f"{number:g} {unit}{'' if number == 1 else 's'}"

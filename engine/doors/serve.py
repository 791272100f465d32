"""Run the server: open the socket, say where it listens, and go when told to."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvicorn

from engine.doors.access import Access
from engine.doors.app import make_app
from engine.doors.connections import IDLE_SECONDS, PatientHttp, WatchedHttp
from engine.doors.http.service import HttpService
from engine.doors.security import Allowed, Gate
from engine.doors.threads import WORKERS, NoThreads, start_all
from engine.doors.tls import Tls
from engine.library import paths as config
from engine.loading.model import LoadModel
from engine.loop.events import Event
from engine.protocol import (
    MAX_FRAME,
    PROTOCOL,
    Adapters,
    Error,
    LoadAdapter,
    Loaded,
    Loading,
    LoadOptions,
    Ready,
    encode,
)
from engine.services.hub import Emit, EngineHub
from engine.services.operations import OperationFailed
from engine.services.residency import CallLater, Policy, Residency
from engine.services.serving import Serving, Visits

if TYPE_CHECKING:
    from engine.loop.engine import Engine
    from engine.services.probes import MachineProbes

log = logging.getLogger(__name__)

SLACK = 2
"""Frames up to this many times MAX_FRAME are read, so that their sender can be told; longer ones disconnect."""


class PortInUse(Exception):  # noqa: N818 - an outcome that a person is told about
    """The address cannot be listened on; the message is a sentence for a person. ``reason`` is its first half."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason} {advice}")
        self.reason = reason


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises :class:`PortInUse`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: asyncio sends small replies at once (TCP_NODELAY) only on such sockets.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(64)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            reason = f"Port {port} is in use by {_holder(port)}."
            raise PortInUse(reason, "Choose another with --port, or 0 for a free one.") from error
        reason = f"{host} port {port} cannot be listened on ({error})."
        raise PortInUse(reason, "Choose another --host or --port.") from error
    return listener


def _holder(port: int) -> str:
    """Who listens on a port of this machine, in words; a system may not tell, of programs of others at least."""
    with contextlib.suppress(psutil.Error, OSError):
        found = (each for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port)
        if (pid := next((each.pid for each in found if each.status == psutil.CONN_LISTEN), None)) is not None:
            return f"another program ({psutil.Process(pid).name()}, process {pid})"
    return "another program"


def stop_signals() -> list[int]:
    """The signals that ask the server to go; Ctrl-Break among them where keyboards have it."""
    names = ("SIGINT", "SIGTERM", "SIGBREAK")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


class _Uvicorn(uvicorn.Server):
    """Stops at a signal without raising it again: being stopped is no failure, and the token file is to go.

    ``stopping`` is called before the connections are closed.
    """

    def __init__(self, settings: uvicorn.Config, stopping: Callable[[], None]) -> None:
        super().__init__(settings)
        self._stopping = stopping
        self._also: asyncio.Server | None = None
        """The listener for other programs, on which connections are counted."""
        self._port = 0
        """Its port; 0: there is none."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping()
        await super().shutdown(sockets)

    async def listen_also(self, listener: socket.socket | None, noted: Callable[[], object]) -> None:
        """Serve on ``listener`` besides, in the place of the one before; None: no more. ``noted`` hears of connections
        to it."""
        if self._also is not None:
            self._also.close()
            self.servers.remove(self._also)
            for connection in self.connections():
                connection.shutdown()  # once its answer has ended
        self._also, self._port = None, 0
        if listener is not None:
            self._port = listener.getsockname()[1]
            make = partial(
                WatchedHttp, noted, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            loop = asyncio.get_running_loop()
            self._also = await loop.create_server(make, sock=listener, ssl=self.config.ssl)
            self.servers.append(self._also)

    def connections(self) -> list[Any]:
        """Those of other programs that are open. From any thread."""
        every: list[Any] = list(self.server_state.connections)
        return [each for each in every if self._port and each.transport.get_extra_info("sockname")[1] == self._port]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Server:
    """One engine behind one port. ``on_exit`` tells how it ended: the process's exit code."""

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        make_engine: Callable[[Emit], Engine],
        probes: MachineProbes,
        fetches: bool = False,
        policy: Policy = Policy(),
        call_later: CallLater | None = None,
        allowed: Allowed = Allowed(),
        tls: Tls | None = None,
        logs: bool = False,
    ) -> None:
        """``fetches``: as of :class:`HttpService`; ``policy`` and ``call_later`` as of :class:`Residency`; ``allowed``
        as of :class:`Gate`; ``logs`` as of :class:`AccessMiddleware`."""
        self.listener = listener
        self.port: int = listener.getsockname()[1]
        self.exit_code = 0
        self.failure = ""
        """Why it stopped serving, as a sentence; empty where it was asked to."""
        self.hub = EngineHub(make_engine, probes, self._engine_died)
        self.open = not ipaddress.ip_address(listener.getsockname()[0]).is_loopback
        """Other machines can reach it."""
        self._gate = gate = Gate(self.port, self.open, allowed, "http" if tls is None else "https")
        self.residency = Residency(self.hub, policy, call_later)
        self.access = Access(token)
        service = HttpService(self.hub, self.residency, self.access, fetches)
        self.serving = Serving(self._open_port, Visits(lambda: len(self._uvicorn.connections())))
        settings = uvicorn.Config(
            make_app(self.hub, self.residency, token, gate, service, self.serving, logs),
            http=PatientHttp,
            timeout_keep_alive=IDLE_SECONDS,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # anybody could name another address
            ws="websockets-sansio",
            ws_max_size=SLACK * MAX_FRAME,
            ws_per_message_deflate=False,
            ws_ping_interval=None,
            ws_ping_timeout=None,
            timeout_graceful_shutdown=2,
            lifespan="on",
            server_header=False,
            ssl_certfile=tls and tls.certificate,
            ssl_keyfile=tls and tls.key,
        )
        self._uvicorn = _Uvicorn(settings, service.stop)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()

    def run(self, started: Callable[[], None] = lambda: None) -> int:
        """Serve until :meth:`stop`, a signal, or the engine's death. ``started`` is called once it listens."""
        asyncio.run(self._main(started))
        return self.exit_code

    def stop(self) -> None:
        """Stop serving; may be called from any thread."""
        self._uvicorn.should_exit = True

    def load(
        self,
        path: str,
        draft: str,
        options: LoadOptions = LoadOptions(),
        needed: bool = False,
        adapters: Mapping[str, str] = {},
    ) -> None:
        """Ask for a model, and for adapters of it (folders by name); how it went is written to the log. From the event
        loop's thread or before it runs.

        ``needed``: without this first model, and these adapters, there is nothing to serve, so a failure ends the
        server.
        """
        loaded = not needed

        def report(event: Event) -> None:
            nonlocal loaded
            all_there = isinstance(event, Loaded) and not adapters
            loaded = loaded or all_there or (isinstance(event, Adapters) and len(event.adapters) == len(adapters))
            if isinstance(event, Error) and not loaded:
                if not self._uvicorn.should_exit:  # whoever stops the server cancels its load, which is no failure
                    self._fail(event.message)
            else:
                _report_load(event)

        self.hub.listen(report)
        self.hub.submit(LoadModel(path, draft, options))
        for name, folder in adapters.items():
            self.hub.submit(LoadAdapter(name=name, path=folder))

    def _open_port(self, port: int) -> str:
        """As of :class:`Serving`."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._listen_also(port), self._loop).result()

    async def _listen_also(self, port: int) -> str:
        async with self._opening:
            if port not in self._gate.ports:
                del self._gate.ports[1:]
                await self._uvicorn.listen_also(None, self.serving.visits.tell)
                if not port:
                    return ""
                try:
                    listener = open_socket("127.0.0.1", port)
                except PortInUse as error:
                    raise OperationFailed(f"{error.reason} Choose another port, or end that program.") from error
                self._gate.ports.append(port)
                await self._uvicorn.listen_also(listener, self.serving.visits.tell)
            return f"{self._gate.scheme}://127.0.0.1:{port}"

    async def _main(self, started: Callable[[], None]) -> None:
        try:
            executor = start_all(ThreadPoolExecutor(WORKERS, thread_name_prefix="server"), WORKERS)
            asyncio.get_running_loop().set_default_executor(executor)
            start_all(self.hub.long_prompts, 1)
            self._loop = asyncio.get_running_loop()
        except NoThreads as error:
            log.critical("%s", error)
            self._fail(str(error))
            return
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[self.listener]))
        while not self._uvicorn.started and not serving.done():
            await asyncio.sleep(0.005)
        if not serving.done():
            started()
        await serving

    def _engine_died(self) -> None:
        log.critical("The engine's thread ended. The server stops; start it again.")
        self._fail("The engine stopped. Start it again; the lines above say why.")

    def _fail(self, sentence: str) -> None:
        self.failure, self.exit_code = self.failure or sentence, 1
        self.stop()


def announce(server: Server) -> None:
    """The ready line, on standard output."""
    ready = Ready(port=server.port, protocol=PROTOCOL, version=config.version(), pid=os.getpid())
    sys.stdout.write(encode(ready) + "\n")
    sys.stdout.flush()


def stop_at_end_of_input(server: Server) -> None:
    """Stop the server when standard input ends: the parent that held its other end is gone then."""

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            # Past the buffered reader: its lock, held by a thread that waits, would abort the interpreter's shutdown.
            while os.read(sys.stdin.fileno(), 4096):
                pass
        server.stop()

    threading.Thread(target=watch, name="stdin", daemon=True).start()


def write_token(file: Path, token: str) -> None:
    """Leave the token for other programs of this user, in a file that no other user can read."""
    file.unlink(missing_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(token + "\n")


def _report_load(event: Event) -> None:
    match event:
        case Loading(stage=stage, fraction=fraction):
            log.debug("%s (%.0f %%)", stage, 100 * fraction)
        case Loaded(card=card):
            log.info("%s is loaded: %s, context %d tokens.", card.name, card.quantisation, card.context)
        case Error(message=message):
            log.error("%s", message)

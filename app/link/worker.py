"""The thread that keeps an engine running and carries frames both ways. Knows no Qt."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from app.language import tr
from app.link.child import EngineDiedError, EngineProcess
from engine import protocol

log = logging.getLogger(__name__)

QUICK_DEATH_S = 20.0
"""An engine that lived less than this counts towards giving up."""
MAX_QUICK_DEATHS = 5
BACK_OFF_S = (0.1, 0.5, 1.0, 2.0)
RESTARTS = " " + tr("It is being started again.")
STARTS = tr("Starting the engine.")
WELCOME_TIMEOUT_S = 30.0


class LinkState(Enum):
    STARTING = "starting"
    CONNECTED = "connected"
    RESTARTING = "restarting"
    DEAD = "dead"


class StateChange(NamedTuple):
    state: LinkState
    sentence: str


Event = StateChange | Any
"""A state change, or one of protocol.FromEngine's messages."""


class Worker(threading.Thread):
    """Starts the engine, connects, receives until it dies, starts it again; every event goes to ``post``.

    ``post`` is called from this thread. A Welcome is posted before the CONNECTED that follows from it.
    """

    def __init__(self, command: Sequence[str], post: Callable[[Event], None]) -> None:
        super().__init__(name="kvasir-link", daemon=True)
        self._command = command
        self._post = post
        self._stop_asked = threading.Event()
        self._revive = threading.Event()
        self._restart_asked = threading.Event()
        self._environment: Mapping[str, str] = {}
        self._outbox: queue.SimpleQueue[str | None] | None = None
        self._socket: ClientConnection | None = None
        self._process: EngineProcess | None = None
        self.pid: int | None = None

    def send(self, frame: str) -> bool:
        """False when there is no connection to send on (the frame is dropped)."""
        outbox = self._outbox
        if outbox is None:
            return False
        outbox.put(frame)
        return True

    def stop(self) -> None:
        self._stop_asked.set()
        self._revive.set()
        self._end_life()

    def restart(self, environment: Mapping[str, str]) -> None:
        """End the engine and start another, with ``environment`` added to the window's. After DEAD it only starts."""
        self._environment = dict(environment)
        self._restart_asked.set()
        self._revive.set()
        # Closing waits for the engine's answer, for which the caller's thread has no time.
        threading.Thread(target=self._end_life, name="kvasir-link-restart", daemon=True).start()

    @property
    def _leaving(self) -> bool:
        """True if this life of the engine is to end."""
        return self._stop_asked.is_set() or self._restart_asked.is_set()

    def _end_life(self) -> None:
        socket, process = self._socket, self._process
        if socket is not None:
            socket.close()
        elif process is not None:
            process.terminate()  # still starting: it may not read its input for seconds

    def revive(self) -> None:
        """Try again after DEAD."""
        self._revive.set()

    def run(self) -> None:
        deaths = 0
        while not self._stop_asked.is_set():
            began = time.monotonic()
            sentence = self._live_once()
            if self._stop_asked.is_set():
                return
            if self._restart_asked.is_set():
                deaths = 0
                self._post(StateChange(LinkState.STARTING, STARTS))
                continue
            deaths = deaths + 1 if time.monotonic() - began < QUICK_DEATH_S else 1
            log.warning("%s", sentence)
            if deaths < MAX_QUICK_DEATHS:
                self._post(StateChange(LinkState.RESTARTING, sentence + RESTARTS))
                self._stop_asked.wait(BACK_OFF_S[min(deaths, len(BACK_OFF_S)) - 1])
                continue
            advice = tr(
                "{sentence} It stopped {deaths} times in a row: see the log file, then choose “Start the engine”.",
                sentence=sentence,
                deaths=deaths,
            )
            self._revive.clear()
            self._post(StateChange(LinkState.DEAD, advice))
            self._revive.wait()
            deaths = 0
            if not self._stop_asked.is_set():
                self._post(StateChange(LinkState.STARTING, STARTS))

    def _live_once(self) -> str:
        """One life of the engine; returns how it ended ("" when it was asked to)."""
        token = secrets.token_urlsafe(32)
        self._restart_asked.clear()  # whoever asks from here on ends this life, not the one before
        try:
            process = EngineProcess(self._command, token, self._environment)
        except OSError as error:
            return tr("The engine could not be started ({why}).", why=error.strerror or error)
        self.pid, self._process = process.pid, process
        try:
            if self._leaving:  # stop() or restart() came before there was a process to end
                return ""
            ready = process.wait_ready()
            self._converse(ready.port, token)
            return "" if self._leaving else process.obituary()
        except EngineDiedError as death:
            return str(death)
        except ConnectionClosed:
            return "" if self._leaving else process.obituary()
        except (OSError, TimeoutError, InvalidHandshake) as error:
            gone = not process.alive
            return process.obituary() if gone else tr("The engine could not be reached ({why}).", why=error)
        finally:
            self.pid = self._process = None
            process.stop(timeout=3.0 if self._leaving else 0.5)

    def _converse(self, port: int, token: str) -> None:
        """Returns when the socket closes.

        No ping timeout: a load may keep the engine busy for minutes. No compression: on loopback it only costs.
        """
        with connect(
            f"ws://127.0.0.1:{port}/ws",
            compression=None,
            max_size=protocol.MAX_FRAME,
            ping_timeout=None,
            close_timeout=1.0,
            proxy=None,
        ) as socket:
            self._socket = socket
            if self._leaving:  # stop() or restart() came before there was a socket to close
                return
            socket.send(protocol.encode(protocol.Hello(token=token, protocol=protocol.PROTOCOL)))
            self._greet(socket)
            outbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            sender = threading.Thread(target=_pump, args=(socket, outbox), name="kvasir-link-send", daemon=True)
            sender.start()
            self._outbox = outbox
            try:
                outbox.put(protocol.encode(protocol.Subscribe(topics=["telemetry"])))
                self._post(StateChange(LinkState.CONNECTED, tr("The engine is ready.")))
                for frame in socket:
                    self._take(frame)
            finally:
                self._outbox = None
                self._socket = None
                outbox.put(None)
                sender.join(timeout=2.0)

    def _greet(self, socket: ClientConnection) -> None:
        message = protocol.decode_from_engine(socket.recv(timeout=WELCOME_TIMEOUT_S))
        if isinstance(message, protocol.Error):
            raise EngineDiedError(message.message)
        self._post(message)

    def _take(self, frame: str | bytes) -> None:
        try:
            self._post(protocol.decode_from_engine(frame))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("a frame from the engine was not understood: %s", error)


def _pump(socket: ClientConnection, outbox: queue.SimpleQueue[str | None]) -> None:
    """Sends in a thread of its own, so that an engine that reads slowly never holds up the window."""
    while (frame := outbox.get()) is not None:
        try:
            socket.send(frame)
        except ConnectionClosed:
            return

"""The server in a thread, over an engine that has loaded a model, and a client of its websocket."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import httpx
import openai
import uvicorn.server
from websockets.sync.client import ClientConnection, connect

from engine import protocol as p
from engine.doors.serve import Server, open_socket
from engine.loop.commands import Inspect
from engine.loop.engine import Engine
from engine.services.probes import MachineProbes
from tests.engine.doors.network.fake import FakeProbes

TOKEN = "a token of this test"


async def _nap(seconds: float) -> None:
    """A tenth of what uvicorn sleeps before it looks whether it is to stop, and once more after: most tests' time."""
    await asyncio.sleep(seconds / 10)


uvicorn.server.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": _nap})  # type: ignore[assignment]


class Client:
    """A greeted connection with typed messages."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.send(p.Hello(token=TOKEN, protocol=p.PROTOCOL))
        self.welcome = self.receive()

    def send(self, message: p.Message) -> None:
        self.socket.send(p.encode(message))

    def receive(self, timeout: float = 300) -> Any:
        return p.decode_from_engine(self.socket.recv(timeout=timeout))

    def until(self, kind: type, timeout: float = 300) -> Any:
        """The next message of a kind; the ones before it are in ``passed``."""
        self.passed: list[Any] = []
        while True:
            message = self.receive(timeout)
            if isinstance(message, kind):
                return message
            self.passed.append(message)


class KeepingProbes(FakeProbes):
    """Fixed numbers, but for what is kept of runs."""

    def recorder(self, loaded: Any, bandwidth: float) -> Any:
        return MachineProbes.recorder(loaded, bandwidth)


class ServerThread:
    """A server in a thread, and clients of it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        ready = threading.Event()
        self.thread = threading.Thread(target=server.run, args=(ready.set,))
        self.thread.start()
        assert ready.wait(300)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300)

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=TOKEN, max_retries=0, timeout=300)

    def connect(self, **options: Any) -> ClientConnection:
        return connect(f"ws://127.0.0.1:{self.server.port}/ws", max_size=p.MAX_FRAME, compression=None, **options)

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(300)
        assert not self.thread.is_alive()


class Serving(ServerThread):
    """A server with an engine that loads the model of a folder, and ``adapters`` of it by name."""

    def __init__(
        self, folder: Path, adapters: Mapping[str, str] = {}, dtype: Literal["auto", "float32"] = "float32"
    ) -> None:
        self.engine: Engine

        def make(emit: Any) -> Engine:
            self.engine = Engine(emit, "cpu")
            return self.engine

        server = Server(open_socket("127.0.0.1", 0), TOKEN, make, KeepingProbes())
        options = p.LoadOptions(device="cpu", dtype=dtype, memory=400e6)
        server.load(str(folder), "", options, needed=bool(adapters), adapters=adapters)
        super().__init__(server)

    def loaded(self) -> Serving:
        """Itself, once the model is there."""
        while self.engine.loaded is None:
            time.sleep(0.01)
        return self

    def value(self, key: str) -> p.Value:
        return next(spec.value for spec in self.engine.catalogue_state() if spec.key == key)

    def metrics(self) -> dict[str, float]:
        obeyed = threading.Event()  # an answer's end is told before the step that ended it is counted
        self.engine.submit(Inspect("page", lambda view: obeyed.set()))
        assert obeyed.wait(300)
        with self.http() as http:
            text = http.get("/metrics").raise_for_status().text
        return {name: float(value) for name, value in re.findall(r"^kvasir_(\S+) (\S+)$", text, re.MULTILINE)}

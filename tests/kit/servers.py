"""The server in a thread, over an engine that has loaded a model, and a client of its websocket."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from websockets.sync.client import ClientConnection

from engine import protocol as p
from engine.doors.serve import Server, open_socket
from engine.loop.commands import Inspect
from engine.loop.engine import Engine
from engine.services.probes import MachineProbes
from tests.engine.doors.network.fake import FakeProbes

TOKEN = "a token of this test"


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


class Serving:
    """A server in a thread, with an engine that loads the model of a folder, and ``adapters`` of it by name."""

    def __init__(
        self, folder: Path, adapters: Mapping[str, str] = {}, dtype: Literal["auto", "float32"] = "float32"
    ) -> None:
        self.engine: Engine

        def make(emit: Any) -> Engine:
            self.engine = Engine(emit, "cpu")
            return self.engine

        self.server = Server(open_socket("127.0.0.1", 0), TOKEN, make, KeepingProbes())
        options = p.LoadOptions(device="cpu", dtype=dtype, memory=400e6)
        self.server.load(str(folder), "", options, needed=bool(adapters), adapters=adapters)
        ready = threading.Event()
        self.thread = threading.Thread(target=self.server.run, args=(ready.set,))
        self.thread.start()
        assert ready.wait(300)

    def value(self, key: str) -> p.Value:
        return next(spec.value for spec in self.engine.catalogue_state() if spec.key == key)

    def metrics(self) -> dict[str, float]:
        obeyed = threading.Event()  # an answer's end is told before the step that ended it is counted
        self.engine.submit(Inspect("page", lambda view: obeyed.set()))
        assert obeyed.wait(300)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.server.port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            text = reply.read().decode()
        return {name: float(value) for name, value in re.findall(r"^kvasir_(\S+) (\S+)$", text, re.MULTILINE)}

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(300)
        assert not self.thread.is_alive()

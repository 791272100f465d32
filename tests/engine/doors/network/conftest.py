from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route
from websockets.sync.client import ClientConnection, connect

from engine import protocol as p
from engine.doors.security import Allowed
from engine.doors.serve import Server, open_socket
from engine.doors.tls import Tls
from engine.services.residency import CallLater, Policy
from tests.engine.doors.network.fake import FakeEngine, FakeProbes
from tests.kit.servers import TOKEN, Client


class Running:
    """A server in a thread, with its fake engine."""

    def __init__(
        self,
        loaded: bool = True,
        policy: Policy = Policy(),
        call_later: CallLater | None = None,
        allowed: Allowed = Allowed(),
        tls: Tls | None = None,
        logs: bool = False,
    ) -> None:
        self.engines: list[FakeEngine] = []
        listener, probes = open_socket("127.0.0.1", 0), FakeProbes()
        self.server = Server(
            listener,
            TOKEN,
            lambda emit: self._make(emit, loaded),
            probes,
            False,
            policy,
            call_later,
            allowed,
            tls,
            logs,
        )
        ready = threading.Event()
        self.thread = threading.Thread(target=self.server.run, args=(ready.set,))
        self.thread.start()
        assert ready.wait(300)

    def _make(self, emit: Any, loaded: bool) -> FakeEngine:
        self.engines.append(FakeEngine(emit, loaded))
        return self.engines[0]

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def routes(self) -> list[Route]:
        """All that is served over HTTP."""
        app: Any = self.server._uvicorn.config.app
        return [route for route in app._app._app.routes if isinstance(route, Route)]

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300)

    def connect(self, **options: Any) -> ClientConnection:
        return connect(f"ws://127.0.0.1:{self.server.port}/ws", max_size=p.MAX_FRAME, compression=None, **options)

    def stop(self) -> None:
        self.engine.gate.set()
        self.engine.load_gate.set()
        self.server.stop()
        self.thread.join(300)
        assert not self.thread.is_alive()


def is_error(path: str, sent: Any) -> bool:
    """Whether it has the shape of an error in the dialect of a path."""
    if path.startswith("/api/"):
        return set(sent) == {"error"} and isinstance(sent["error"], str)
    wanted = {"type", "error"} if path.startswith("/v1/messages") else {"error"}
    return set(sent) == wanted and {"type", "message"} <= set(sent["error"])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for everything, with one model and its draft in it."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    models = tmp_path / "models"
    for name in ("tiny", "tiny-draft", "broken", "huge"):
        (models / name).mkdir(parents=True)
        (models / name / "config.json").write_text(json.dumps({}))
    monkeypatch.setenv("KVASIR_MODELS", str(models))
    return tmp_path


@pytest.fixture
def running(home: Path) -> Iterator[Running]:
    made = Running()
    yield made
    made.stop()


@pytest.fixture
def http(running: Running) -> Iterator[httpx.Client]:
    with running.http() as client:
        yield client


@pytest.fixture(scope="module")
def refusing() -> Iterator[Running]:
    """One server for all requests of a file that it refuses before the engine hears of them."""
    made = Running()
    yield made
    made.stop()


@pytest.fixture
def empty(home: Path) -> Iterator[Running]:
    """Without a loaded model."""
    made = Running(loaded=False)
    yield made
    made.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with running.connect() as socket:
        yield Client(socket)


@pytest.fixture
def open_client() -> Iterator[Callable[[Running], Client]]:
    """More clients; they are closed at the end, before the servers are."""
    with contextlib.ExitStack() as stack:
        yield lambda running: Client(stack.enter_context(running.connect()))

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from starlette.routing import Route

from engine.doors.security import Allowed
from engine.doors.serve import Server, open_socket
from engine.doors.tls import Tls
from engine.loop.commands import AddRequest
from engine.services.residency import CallLater, Policy
from tests.engine.doors.network.fake import FakeEngine, FakeProbes
from tests.kit.servers import TOKEN, Client, ServerThread


class Running(ServerThread):
    """A server with a fake engine."""

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
        make = partial(self._make, loaded=loaded)
        super().__init__(Server(listener, TOKEN, make, probes, False, policy, call_later, allowed, tls, logs))

    def _make(self, emit: Any, loaded: bool) -> FakeEngine:
        self.engines.append(FakeEngine(emit, loaded))
        return self.engines[0]

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    @property
    def routes(self) -> list[Route]:
        """All that is served over HTTP."""
        app: Any = self.server._uvicorn.config.app
        return [route for route in app._app._app.routes if isinstance(route, Route)]

    @property
    def asked(self) -> list[AddRequest]:
        """What the engine was to answer."""
        return [command for command in self.engine.seen if isinstance(command, AddRequest)]

    @property
    def last(self) -> AddRequest:
        return self.asked[-1]

    @property
    def prompt(self) -> str:
        """The text of the last request."""
        return str(self.engine.loaded.files.tokenizer.decode(self.last.prompt_ids, skip_special=False))

    @property
    def expected(self) -> str:
        """What the fake engine answers to it: its prompt, backwards."""
        ids = list(reversed(self.last.prompt_ids))[: self.last.sampling.max_tokens or 1000]
        return str(self.engine.loaded.files.tokenizer.decode(ids))

    def stop(self) -> None:
        self.engine.gate.set()
        self.engine.load_gate.set()
        super().stop()


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
def api(running: Running) -> Iterator[openai.OpenAI]:
    """OpenAI's own client."""
    with running.openai() as client:
        yield client


@pytest.fixture
def claude(running: Running) -> Iterator[anthropic.Anthropic]:
    """Anthropic's."""
    with anthropic.Anthropic(base_url=running.url, api_key=TOKEN, max_retries=0, timeout=300) as client:
        yield client


@pytest.fixture
def llama(running: Running) -> Iterator[ollama.Client]:
    """Ollama's."""
    with ollama.Client(running.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300) as client:
        yield client


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
def refused(refusing: Running) -> Iterator[httpx.Client]:
    with refusing.http() as client:
        yield client


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

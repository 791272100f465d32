"""The bundled models, loaded and unloaded by what OpenAI's own client asks for."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import protocol as p
from engine.doors.serve import Server, open_socket
from engine.library import paths
from engine.loop.engine import Engine
from engine.services.residency import Policy
from tests.engine.doors.network.fake import FakeProbes
from tests.kit.apart import apart
from tests.kit.servers import TOKEN, ServerThread

GUIDE, HYBRID = paths.BUNDLED, "kvasir-hybrid"
OPTIONS = p.LoadOptions(device="cpu", dtype="float32", memory=600e6, context=512)
QUESTION: Any = [{"role": "user", "content": "What is a page?"}]


class Demanding(ServerThread):
    """A server with a real engine. ``due`` is what its idle timer would do."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.loads: list[str] = []

        def make(emit: Any) -> Engine:
            def heard(event: Any) -> None:
                if isinstance(event, p.Loaded):
                    self.loads.append(event.card.name)
                emit(event)

            self.engine = Engine(heard, "cpu")
            return self.engine

        policy = Policy(unload_after=600, on_demand=True, options=OPTIONS, default=paths.bundled_model().path)
        listener = open_socket("127.0.0.1", 0)
        super().__init__(Server(listener, TOKEN, make, FakeProbes(), False, policy, self._call_later))
        self.api = self.openai()

    def _call_later(self, seconds: float, act: Any) -> Any:
        self.due.append(act)
        return self

    def cancel(self) -> None:
        self.due.clear()

    def answer(self, model: str = "") -> tuple[str, str | None]:
        done = self.api.chat.completions.create(model=model, messages=QUESTION, temperature=0, seed=1, max_tokens=16)
        return done.model, done.choices[0].message.content

    def stop(self) -> None:
        super().stop()
        self.api.close()


@contextmanager
def demanding(home: Path) -> Iterator[Demanding]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVASIR_HOME", str(home))
        patch.setattr(torch.cuda, "is_available", lambda: False)
        made = Demanding()
        yield made
        made.stop()


@pytest.mark.slow
@apart
def test_models_come_and_go_with_the_requests(tmp_path: Path) -> None:
    with demanding(tmp_path) as serving:
        come_and_go(serving)


def come_and_go(serving: Demanding) -> None:
    with ThreadPoolExecutor(4) as pool:
        first = list(pool.map(serving.answer, ["", GUIDE, "", GUIDE]))
    assert serving.loads == [GUIDE], "one load for all"
    assert [name for name, _ in first] == [GUIDE] * 4
    loaded = serving.engine.loaded
    assert loaded is not None
    kept = [weakref.ref(part) for part in (loaded, loaded.model, loaded.runner.kv)]
    del loaded
    gone = threading.Event()
    serving.server.hub._call_in_loop(lambda: [serving.server.hub.listen(lambda _: gone.set()), serving.due[-1]()])
    assert gone.wait(300)
    gc.collect()
    assert [part() for part in kept] == [None, None, None], "an idle model leaves nothing behind"
    assert serving.answer() == first[0]
    assert serving.loads == [GUIDE, GUIDE]
    stream = serving.api.chat.completions.create(model=GUIDE, messages=QUESTION, stream=True, max_tokens=48)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(serving.answer, HYBRID)
        ends = [chunk.choices[0].finish_reason for chunk in stream]
        assert ends[-1] in ("stop", "length"), "the answer was whole before its model made room"
        assert other.result()[0] == HYBRID
    assert serving.loads == [GUIDE, GUIDE, HYBRID]

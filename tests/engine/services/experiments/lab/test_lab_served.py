"""Experiments on the engine that is served, over its websocket: who else asks, cancel, and what is put back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch
from safetensors.torch import save_file
from websockets.sync.client import connect

from engine import protocol as p
from engine.library.paths import find_model
from engine.loading.parts.adapter import adapters_of
from engine.protocol.calls import Operation
from engine.protocol.lab import Column, CompareColumns, LabOutcome, LabResult, ListExperiments, RunExperiment
from engine.protocol.operations import COMPARE_COLUMNS, LIST_EXPERIMENTS, RUN_EXPERIMENT
from engine.services.client import EngineClient
from engine.services.experiments import operations
from engine.services.experiments.kept import kept
from engine.services.experiments.lab import ALL
from engine.services.hub import EngineHub
from engine.services.operations import Context
from tests.kit.servers import Client, Serving

SERVED = "kvasir-needle"
RUN = RunExperiment(name="kv_cache", pairs=1, seconds=1.0, options=p.LoadOptions(device="cpu"))
"""With the bundled model, in place of the served one."""
FILE = "adapter_model.safetensors"
GREEDY = p.Sampling(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Another model than the bundled one, with an adapter and with a cache that is none of the usual ones."""
    patch = pytest.MonkeyPatch()
    patch.setenv("KVASIR_HOME", str(tmp_path_factory.mktemp("home")))
    folder = Path(find_model(SERVED).path)
    made = Serving(folder, {"one": str(adapter_of(folder, tmp_path_factory.mktemp("adapter")))})
    with client_of(made) as client:
        while not adapters_of(made.engine.loaded):
            client.receive()
        client.send(p.Set(key="kv_kind", value="int8"))
        client.until(p.Options)
        while made.value("kv_kind") != "int8":
            client.receive()
    yield made
    made.stop()
    patch.undo()


def adapter_of(model: Path, folder: Path) -> Path:
    """An adapter of one matrix that changes nothing."""
    width = json.loads((model / "config.json").read_text())["hidden_size"]
    name = "base_model.model.model.layers.0.self_attn.o_proj.lora_"
    save_file({f"{name}A.weight": torch.zeros(2, width), f"{name}B.weight": torch.zeros(width, 2)}, folder / FILE)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["o_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


class Caller(Client):
    """A client that calls operations; ``told`` is what else it was told since the last one."""

    def call(self, operation: Operation[Any, Any, Any], request: Any) -> None:
        self.told: list[Any] = []
        self.send(p.Call(id="c", operation=operation.name, request=msgspec.Raw(msgspec.json.encode(request))))

    def end(self, operation: Operation[Any, Any, Any]) -> Any:
        while not self._ends(message := self.receive()):
            self.told.append(message)
        return message if isinstance(message, p.Error) else operation.read_answer(message.answer)

    def begun(self) -> None:
        """Wait for the first event."""
        self.until(p.CallEvent)
        self.told += self.passed

    def _ends(self, message: Any) -> bool:
        return isinstance(message, p.CallAnswer | p.Error) and message.id == "c"

    def answer(self) -> str:
        self.send(p.Generate(id="g", prompt="The code is", sampling=GREEDY))
        self.until(p.Finished)
        return "".join(message.text for message in self.passed if isinstance(message, p.Delta))


@contextlib.contextmanager
def client_of(serving: Serving) -> Iterator[Caller]:
    url = f"ws://127.0.0.1:{serving.server.port}/ws"
    with connect(url, max_size=p.MAX_FRAME, compression=None, close_timeout=1) as socket:
        yield Caller(socket)


@pytest.fixture
def client(serving: Serving) -> Iterator[Caller]:
    with client_of(serving) as client:
        yield client


def check_as_before(serving: Serving) -> None:
    assert serving.engine.loaded is not None
    assert serving.engine.loaded.card.name == SERVED
    assert serving.value("kv_kind") == "int8"
    assert [adapter.name for adapter in adapters_of(serving.engine.loaded)] == ["one"]


@pytest.mark.slow
def test_an_answer_asked_for_meanwhile_comes_after_it_and_is_the_same(serving: Serving, client: Caller) -> None:
    before = client.answer()
    client.call(RUN_EXPERIMENT, RUN)
    client.begun()
    client.send(p.Generate(id="g", prompt="The code is", sampling=GREEDY))
    client.send(p.Set(key="token_budget", value=256))
    outcome = client.end(RUN_EXPERIMENT)
    assert isinstance(outcome, LabOutcome)
    assert isinstance(outcome.found, LabResult)
    assert (outcome.found.model, outcome.found.name, outcome.warning) == ("kvasir-guide", "kv_cache", "")
    assert kept()[-1] == outcome.found
    check_as_before(serving)
    told = [message for message in client.told if not isinstance(message, p.CallEvent)]
    assert [type(message) for message in told[:3]] == [p.Loaded, p.Options, p.Adapters], "and nothing of the run"
    assert (told[0].card.name, told[2].adapters[0].name) == (SERVED, "one")
    if not any(isinstance(message, p.Finished) for message in told):
        client.until(p.Finished)
        told += [*client.passed]
    assert "".join(message.text for message in told if isinstance(message, p.Delta)) == before
    assert serving.value("token_budget") == 256, "what was ordered meanwhile is done"
    client.send(p.Set(key="token_budget", value=512))


@pytest.mark.parametrize("how", ["cancel", "leave"])
def test_cancelled_in_its_middle_it_leaves_all_as_it_was(serving: Serving, client: Caller, how: str) -> None:
    before = client.answer()
    with client_of(serving) as other:
        other.call(RUN_EXPERIMENT, msgspec.structs.replace(RUN, name="kivi", model=SERVED))
        if how == "cancel":
            other.begun()
            client.send(p.Load(model="kvasir-guide"))
            while not serving.server.hub._driver.held:
                time.sleep(0.01)
            client.send(p.CancelLoad())
            failed = client.until(p.Error)
            assert (failed.code, failed.message) == ("load_cancelled", "Loading kvasir-guide was cancelled.")
            other.send(p.Cancel(id="c"))
            assert other.end(RUN_EXPERIMENT).code == "cancelled"
        else:
            time.sleep(0.3)
    assert client.answer() == before
    check_as_before(serving)


def test_a_failure_leaves_all_as_it_was(serving: Serving, client: Caller) -> None:
    client.call(RUN_EXPERIMENT, msgspec.structs.replace(RUN, model=SERVED, options=p.LoadOptions(memory=1000)))
    assert "memory" in client.end(RUN_EXPERIMENT).message
    check_as_before(serving)
    client.call(RUN_EXPERIMENT, msgspec.structs.replace(RUN, name="unknown"))
    assert client.end(RUN_EXPERIMENT).message.startswith("There is no experiment called 'unknown'")
    client.call(RUN_EXPERIMENT, msgspec.structs.replace(RUN, model="unknown"))
    assert "'unknown'" in client.end(RUN_EXPERIMENT).message


def test_columns_are_compared_with_the_served_model_out_of_the_way(serving: Serving, client: Caller) -> None:
    columns = [Column(name="one", model=SERVED), Column(name="other", model=SERVED, set={"kv_kind": "int8"})]
    request = CompareColumns(columns=columns, prompts=["The code is"], tokens=4, pairs=1, device="cpu")
    client.call(COMPARE_COLUMNS, request)
    client.begun()
    assert serving.engine.loaded is None
    made = client.end(COMPARE_COLUMNS)
    assert made.found.models == [SERVED, SERVED]
    assert "The code is" in made.report
    check_as_before(serving)


def test_the_experiments_are_listed_with_what_was_found(serving: Serving, client: Caller) -> None:
    client.call(LIST_EXPERIMENTS, ListExperiments(device="cpu"))
    index = client.end(LIST_EXPERIMENTS)
    assert index.model == "kvasir-guide"
    assert len(index.pages) == len(ALL)
    events = [LIST_EXPERIMENTS.read_event(each.event) for each in client.told if isinstance(each, p.CallEvent)]
    assert {result.name for result in events} <= {page.name for page in index.pages}
    check_as_before(serving)


def test_the_bundled_model_is_not_loaded_again_where_it_is_served_as_when_new(
    guide: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "_index", lambda model: model)
    context, told = Context(cast("EngineHub", SimpleNamespace(engine=guide.engine))), list[LabResult]()
    asked = ListExperiments(device=guide.model.command.options.device)
    listed = operations.experiments(context, asked, told.append)
    assert (listed.model, len(listed.pages)) == ("kvasir-guide", len(ALL))
    guide.set("page_policy", "window_sinks")
    try:
        assert operations.experiments(context, asked, told.append) == guide.model.command
    finally:
        guide.set("page_policy", "keep_all")
    assert operations.experiments(Context(), asked, told.append) == guide.model.command

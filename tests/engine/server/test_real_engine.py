"""Comparisons and counters of the server over the engine itself, with a tiny model."""

from __future__ import annotations

import math
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from websockets.sync.client import connect

from engine import protocol as p
from engine.bench.folders import gptq_folder
from engine.bench.shapes import Shape
from engine.catalogue import BY_KEY
from engine.core import runners
from engine.core.commands import Inspect
from engine.core.engine import Engine
from engine.server.compare import ALONE, CHANCE, MANY
from engine.server.hub import EngineLike
from engine.server.serve import Server, open_socket
from tests.engine.server.conftest import TOKEN, Client
from tests.engine.server.fake import FakeProbes

GREEDY = p.Sampling(temperature=0.0, max_tokens=12, seed=1, ignore_eos=True)
PROMPT = " ".join(f"w{5 + 7 * i % 400}" for i in range(100))
NEW = ("prefix_cache", "admission", "preemption", "host_cache", "cascade", "kv_kind", "page_policy")


class Serving:
    """A server in a thread, with an engine that has loaded the tiny model."""

    def __init__(self, folder: Path) -> None:
        self.engine: Engine

        def make(emit: Any) -> EngineLike:
            self.engine = Engine(emit, "cpu")
            return self.engine

        self.server = Server(open_socket("127.0.0.1", 0), TOKEN, make, FakeProbes())
        self.server.load(str(folder), "", p.LoadOptions(device="cpu", dtype="float32", memory=400e6))
        ready = threading.Event()
        self.thread = threading.Thread(target=self.server.run, args=(ready.set,))
        self.thread.start()
        assert ready.wait(20)

    def value(self, key: str) -> p.Value:
        return next(spec.value for spec in self.engine.catalogue_state() if spec.key == key)

    def metrics(self) -> dict[str, float]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.server.port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            text = reply.read().decode()
        return {name: float(value) for name, value in re.findall(r"^kvasir_(\S+) (\S+)$", text, re.MULTILINE)}

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape("tiny", layers=3, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=504, context=512)
    return gptq_folder(shape, tmp_path_factory.mktemp("models"))


@pytest.fixture
def serving(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch.set_num_threads(1)
    made = Serving(folder)
    yield made
    made.stop()


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with connect(f"ws://127.0.0.1:{serving.server.port}/ws", max_size=p.MAX_FRAME, compression=None) as socket:
        client = Client(socket)
        while serving.engine.loaded is None:
            client.receive()
        yield client


def compare(client: Client, key: str, **fields: Any) -> Any:
    client.send(p.Compare(id="c", key=key, prompt=PROMPT, sampling=GREEDY, **fields))
    while True:
        message = client.receive(60)
        if isinstance(message, (p.Compared, p.Error)):
            return message


def settled(client: Client, serving: Serving) -> None:
    """Wait until the engine has obeyed every command so far, and see that it answers."""
    obeyed = threading.Event()
    serving.engine.submit(Inspect("page", lambda view: obeyed.set()))
    assert obeyed.wait(30)
    client.send(p.Generate(id="g", prompt="w5 w6", sampling=p.Sampling(max_tokens=1)))
    client.until(p.Finished, 30)


def test_every_switch_of_the_cache_is_measured_and_put_back(client: Client, serving: Serving) -> None:
    assert {key for key in NEW if BY_KEY[key].compare} == set(NEW)
    for key in NEW:
        before = serving.value(key)
        compared = compare(client, key, rounds=2)
        assert isinstance(compared, p.Compared), (key, compared)
        values = list(BY_KEY[key].compare)
        assert [run.value for run in compared.runs] == values * 2, key
        assert all(run.tokens == 12 for run in compared.runs)
        assert serving.engine.loaded is not None, "the result comes when all is as it was"
        assert serving.value(key) == before, key
        assert (ALONE in compared.note) == (key in MANY)
        if BY_KEY[key].exactness == "lossless":
            assert compared.same, key
            assert CHANCE not in compared.note
        else:
            assert compared.same == (CHANCE in compared.note) == (compared.ratio is not None)
    assert serving.engine.loaded.kind.name == "16bit"
    settled(client, serving)


def test_a_compressed_cache_gives_other_answers_and_no_ratio(client: Client, serving: Serving) -> None:
    client.send(p.Set(key="kv_key_bits", value="2"))
    compared = compare(client, "kv_kind", rounds=1, values=["16bit", "int4"])
    assert isinstance(compared, p.Compared)
    assert not compared.same
    assert compared.ratio is None
    assert compared.first_difference is not None
    assert min(compared.before, compared.after) > 0


def test_page_policies_are_compared_over_a_cache_with_bounds(client: Client, serving: Serving) -> None:
    client.send(p.Set(key="quest_tokens", value=16))
    compared = compare(client, "page_policy", rounds=1, values=["keep_all", "quest"])
    assert isinstance(compared, p.Compared)
    settled(client, serving)
    assert serving.value("page_policy") == "keep_all"
    assert serving.engine.loaded is not None
    assert not serving.engine.loaded.kind.bounds


@pytest.mark.parametrize("key", ["kv_kind", "page_policy", "host_cache"])
def test_a_cancelled_comparison_leaves_the_switch_as_it_was(client: Client, serving: Serving, key: str) -> None:
    client.send(p.Compare(id="c", key=key, prompt=PROMPT, sampling=GREEDY, rounds=20))
    client.until(p.CompareProgress, 30)
    client.send(p.Cancel(id="c"))
    error = client.until(p.Error, 30)
    assert (error.code, error.id) == ("cancelled", "c")
    settled(client, serving)
    assert serving.value(key) == BY_KEY[key].default


def test_a_cache_that_cannot_be_made_ends_the_comparison_and_the_old_one_serves(
    client: Client, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runners.new_store

    def failing(config, pages, dtype, device, kind, recent_pages=None):
        if kind.name == "int8":
            raise RuntimeError("no room for that")
        return real(config, pages, dtype, device, kind, recent_pages)

    monkeypatch.setattr(runners, "new_store", failing)
    error = compare(client, "kv_kind", rounds=1)
    assert isinstance(error, p.Error)
    assert "no room for that" in error.message
    settled(client, serving)
    assert serving.value("kv_kind") == "16bit"


def test_what_is_counted_is_what_happened(client: Client, serving: Serving) -> None:
    """The same prompt twice: the second finds its whole pages but for the last token, which is always computed."""
    prompt = PROMPT
    length = len(prompt.split())
    usages = []
    for number in range(3):
        client.send(p.Generate(id=f"g{number}", prompt=prompt, sampling=GREEDY))
        usages.append(client.until(p.Finished, 30).usage)
    found = (length - 1) // 16 * 16
    assert [(usage.prompt_tokens, usage.cached_tokens) for usage in usages] == [
        (length, 0),
        (length, found),
        (length, found),
    ]
    read = serving.metrics()
    assert read["cache_looked_up_total"] == 3 * length
    assert read["cache_hit_total"] == 2 * found
    assert read["generated_total"] == 3 * 12
    assert read["answers_started_total"] == 3
    assert read["prefilled_total"] == length + 2 * (length - found)
    assert read['pages{state="used"}'] == serving.engine.cache_pages().used
    # Nothing runs: the tree alone holds pages, whole ones.
    assert read["live_tokens"] == 16 * read['pages{state="used"}'] >= length - 16
    assert read['cache_swapped_bytes{place="host"}'] == 0 == read["cache_swapped_out_total"]


def test_pages_that_are_given_up_are_counted_with_their_bytes(client: Client, serving: Serving) -> None:
    """Texts that together exceed the cache: what leaves the device is in host memory, and comes back from there."""
    loaded = serving.engine.loaded
    assert loaded is not None
    page = sum(store.page_bytes for store in loaded.stores)
    count = math.ceil((loaded.pages - 1) / 25) + 3
    texts = [" ".join(f"w{5 + (101 * text + 13 * i) % 490}" for i in range(400)) for text in range(count)]
    for number, text in enumerate([*texts, texts[0]]):
        client.send(p.Generate(id=f"g{number}", prompt=text, sampling=GREEDY))
        last = client.until(p.Finished, 60)
    assert last.usage.cached_tokens == 399 // 16 * 16, "found again, though the device had given it up"
    stats = serving.engine.cache_stats()
    read = serving.metrics()
    assert stats.swapped_out > 0
    assert read["cache_swapped_out_total"] == stats.swapped_out
    assert read["cache_swapped_in_total"] == stats.swapped_in > 0
    assert stats.swapped_out % page == stats.swapped_in % page == 0
    assert stats.swapped_in >= 24 * page
    assert read["cache_evicted_pages_total"] == stats.evicted_pages
    assert read['cache_swapped_bytes{place="host"}'] == stats.host_bytes == stats.host_pages * page
    assert 0 < stats.hit < stats.looked_up

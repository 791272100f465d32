"""Comparisons and counters of the server over the engine itself, with a tiny model."""

from __future__ import annotations

import json
import math
import os
import threading
import time
import weakref
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from engine import protocol as p
from engine.cache.policies import KeepAll
from engine.catalogue import BY_KEY
from engine.decoding.telemetry import runs
from engine.loading import runners
from engine.loop.commands import Inspect
from engine.services.answers.compare import CHANCE
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from engine.services.probes import MachineProbes
from tests.kit.apart import apart
from tests.kit.servers import TOKEN, Client, Serving

GREEDY = p.Sampling(temperature=0.0, max_tokens=12, seed=1, ignore_eos=True)
PROMPT = " ".join(f"w{5 + 7 * i % 400}" for i in range(100))
NEW = ("prefix_cache", "admission", "preemption", "host_cache", "cascade", "kv_kind", "page_policy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape("tiny", layers=3, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=504, context=512)
    return gptq_folder(shape, tmp_path_factory.mktemp("models"))


@contextmanager
def serving_of(folder: Path) -> Iterator[Serving]:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        made = Serving(folder)
        yield made
        made.stop()


@pytest.fixture
def serving(folder: Path, home: Path) -> Iterator[Serving]:
    with serving_of(folder) as made:
        yield made


@contextmanager
def client_of(serving: Serving) -> Iterator[Client]:
    with serving.connect(max_queue=None) as socket:
        client = Client(socket)
        while serving.engine.loaded is None:
            client.receive()
        yield client


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with client_of(serving) as made:
        yield made


def compare(client: Client, key: str, **fields: Any) -> Any:
    client.send(p.Compare(id="c", key=key, prompt=PROMPT, sampling=GREEDY, **fields))
    while True:
        message = client.receive()
        if isinstance(message, (p.Compared, p.Error)):
            return message


def settled(client: Client, serving: Serving) -> None:
    """Wait until the engine has obeyed every command so far, and see that it answers."""
    obeyed = threading.Event()
    serving.engine.submit(Inspect("page", lambda view: obeyed.set()))
    assert obeyed.wait(300)
    client.send(p.Generate(id="g", prompt="w5 w6", sampling=p.Sampling(max_tokens=1)))
    client.until(p.Finished)


def test_what_an_answer_took_is_kept_for_later_fits(client: Client, serving: Serving, folder: Path) -> None:
    sampling = p.Sampling(max_tokens=40, ignore_eos=True)
    plain: dict[str, p.Value] = {p.keys.SPECULATION: "off"}
    for tries in range(150):  # until the machine's bandwidth is known, nothing is kept
        unread = f"w{tries} {PROMPT}"  # else only the first prompt is read and not found in the cache
        client.send(p.Generate(id="g", prompt=unread, sampling=sampling, optimisations=plain))
        client.until(p.Finished)
        if {"decode", "prefill"} <= {run.what for run in runs.read()}:
            break
        time.sleep(0.2)
    kept = runs.read()
    assert {run.what for run in kept} == {"decode", "prefill"}
    assert {(run.model, run.trial) for run in kept} == {(str(folder), False)}
    assert kept[0].format.startswith("GPTQ 4-bit")
    assert all(run.value > 0 for run in kept)


@pytest.mark.slow
def test_every_switch_of_the_cache_is_measured_and_put_back(client: Client, serving: Serving) -> None:
    assert {key for key in NEW if BY_KEY[key].measure.compare} == set(NEW)
    for key in NEW:
        before = serving.value(key)
        compared = compare(client, key, rounds=2)
        values = list(BY_KEY[key].measure.compare)
        if elsewhere := BY_KEY[key].metric_of(values[1]).elsewhere:
            assert isinstance(compared, p.Error)
            assert compared.message == elsewhere
            continue
        assert isinstance(compared, p.Compared), (key, compared)
        assert [run.value for run in compared.runs] == values * 2, key
        assert all(run.tokens == 12 for run in compared.runs)
        assert serving.engine.loaded is not None, "the result comes when all is as it was"
        assert serving.value(key) == before, key
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


@pytest.mark.parametrize("key", ["kv_kind", "page_policy", "prefix_cache"])
def test_a_cancelled_comparison_leaves_the_switch_as_it_was(client: Client, serving: Serving, key: str) -> None:
    client.send(p.Compare(id="c", key=key, prompt=PROMPT, sampling=GREEDY, rounds=20))
    client.until(p.CompareProgress)
    client.send(p.Cancel(id="c"))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("cancelled", "c")
    settled(client, serving)
    assert serving.value(key) == BY_KEY[key].default


def test_a_cache_that_cannot_be_made_ends_the_comparison_and_the_old_one_serves(
    client: Client, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runners.new_store

    def failing(config, pages, dtype, device, kind, *rest):
        if kind.name == "int8":
            raise RuntimeError("no room for that")
        return real(config, pages, dtype, device, kind, *rest)

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
        usages.append(client.until(p.Finished).usage)
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


@pytest.mark.slow
def test_pages_that_are_given_up_are_counted_with_their_bytes(client: Client, serving: Serving) -> None:
    """Texts that together exceed the cache: what leaves the device is in host memory, and comes back from there."""
    loaded = serving.engine.loaded
    assert loaded is not None
    page = sum(store.page_bytes for store in loaded.stores)
    count = math.ceil((loaded.pages - 1) / 25) + 3
    texts = [" ".join(f"w{5 + (101 * text + 13 * i) % 490}" for i in range(400)) for text in range(count)]
    for number, text in enumerate([*texts, texts[0]]):
        client.send(p.Generate(id=f"g{number}", prompt=text, sampling=GREEDY))
        last = client.until(p.Finished)
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


def parts_of(serving: Serving) -> dict[str, weakref.ref[Any]]:
    model = serving.engine.loaded
    assert model is not None
    parts = {"loaded": model, "model": model.model, "runner": model.runner, "tokenizer": model.files.tokenizer}
    return {name: weakref.ref(part) for name, part in {**parts, "arenas": model.stores[0]}.items()}


def left(parts: dict[str, weakref.ref[Any]], serving: Serving, but: Collection[str] = ()) -> list[str]:
    """Those that are still alive once the engine is done with them."""
    obeyed = threading.Event()
    serving.engine.submit(Inspect("page", lambda view: obeyed.set()))
    assert obeyed.wait(300)
    wanted = {name: part for name, part in parts.items() if name not in but}
    for _ in range(3000):  # a measurement of memory may be looking at it, for long on a busy machine
        if not any(part() for part in wanted.values()):
            break
        time.sleep(0.1)
    return [name for name, part in wanted.items() if part() is not None]


def used(client: Client) -> None:
    """Whatever keeps something of a model did so: remembered answers, figures, maps, a text that is scored."""
    client.send(p.Subscribe(topics=["telemetry", "pages", "tree"]))
    client.send(p.Generate(id="g", prompt=PROMPT, chat="c", sampling=p.Sampling(max_tokens=4)))
    client.until(p.Finished)
    words = p.StructuredOutput("regex", "[w0-9]+")
    client.send(p.Generate(id="s", prompt=PROMPT, sampling=p.Sampling(max_tokens=4), structured=words))
    client.until(p.Finished)
    client.send(p.MeasureCost(id="m", prompt="", chat="c"))
    client.until(p.Cost)
    client.until(p.Telemetry)


@pytest.mark.slow
@apart
def test_nothing_of_a_model_outlives_it(folder: Path, tmp_path: Path) -> None:
    os.environ["KVASIR_HOME"] = str(tmp_path)
    with serving_of(folder) as serving, client_of(serving) as client:
        outlives(client, serving)


def outlives(client: Client, serving: Serving) -> None:
    serving.server.hub.measurements.probes = MachineProbes("cpu")
    used(client)
    parts, path = parts_of(serving), serving.engine.loaded.command.path  # type: ignore[union-attr]
    client.send(p.Set(key="kv_kind", value="int4"))
    assert not left(parts, serving, but=("model", "tokenizer"))
    used(client)
    parts = parts_of(serving)
    client.send(p.Load(model=path))
    client.until(p.Loaded)
    assert not left(parts, serving)
    used(client)
    parts = parts_of(serving)
    client.send(p.Unload())
    client.until(p.Unloaded)
    assert not left(parts, serving)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: p.Set(key="kv_kind", value="int8"), "KV cache was changed"),
        (
            lambda folder: p.Load(model=str(folder), options=p.LoadOptions(device="cpu", memory=400e6)),
            "is being loaded",
        ),
        (lambda folder: p.Unload(), "was unloaded"),
    ],
    ids=["set", "load", "unload"],
)
def test_a_change_that_cuts_an_answer_over_http_is_told(
    client: Client, serving: Serving, folder: Path, change: Any, says: str
) -> None:
    """One answer is read as it is written, the other would come whole."""
    endless = {"overflow": "window", "max_tokens": 1_000_000, "ignore_eos": True}
    body = {"prompt": "w5 w6", **endless}
    url = f"{serving.url}/v1/completions"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with ThreadPoolExecutor(1) as pool, httpx.Client(headers=headers, timeout=300) as http:
        with http.stream("POST", url, json={**body, "stream": True}) as streamed:
            lines = streamed.iter_lines()
            assert json.loads(next(lines).removeprefix("data: "))["choices"]
            whole = pool.submit(http.post, url, json=body)
            while serving.server.hub.answering < 2:
                time.sleep(0.001)
            client.send(change(folder))
            *_, last = [line for line in lines if line]
        error = json.loads(last.removeprefix("data: "))["error"]
        assert (error["code"], error["type"]) == ("cancelled", "server_error")
        assert says in error["message"]
        answer = whole.result(60)
    assert answer.status_code == 503
    assert says in answer.json()["error"]["message"]


def test_lm_evals_multiple_choice_gets_what_a_plain_forward_says(client: Client, serving: Serving) -> None:
    """Prompts as ids, echoed with their log-probabilities, read in small chunks beside each other and an answer."""
    loaded = serving.engine.loaded
    assert loaded is not None
    assert loaded.readers is not None
    assert loaded.files is not None
    client.send(p.Set(key="token_budget", value=48))
    client.send(p.Generate(id="beside", prompt="w5 w6", sampling=p.Sampling(max_tokens=400, ignore_eos=True)))
    ids = loaded.files.tokenizer.encode(PROMPT)
    prompts = [ids, ids[:70], ids[3:5]]
    url = f"{serving.url}/v1/completions"
    body = {"model": "", "temperature": 0, "echo": True, "logprobs": 1, "seed": 1234}
    with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300) as http:
        scored = http.post(url, json={**body, "prompt": prompts, "max_tokens": 1}).json()
        nothing = http.post(url, json={**body, "prompt": PROMPT, "max_tokens": 0}).json()
    assert scored["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert scored["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for choice, prompt in zip(scored["choices"], prompts, strict=True):
        logits = loaded.readers(KeepAll()).exact(len(prompt))(prompt, 0)
        logs = torch.log_softmax(logits.float(), dim=-1)
        told = choice["logprobs"]
        assert told["tokens"][: len(prompt)] == [loaded.files.tokenizer.piece(token) for token in prompt]
        assert len(told["tokens"]) == len(told["text_offset"]) == len(told["top_logprobs"]) == len(prompt) + 1
        assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
        wanted = [float(logs[place, token]) for place, token in enumerate(prompt[1:])]
        assert told["token_logprobs"][1:-1] == pytest.approx(wanted, abs=1e-4)
        greedy = [
            max(top.values()) == own
            for top, own in zip(told["top_logprobs"][1:], told["token_logprobs"][1:], strict=True)
        ]
        assert greedy == [bool(logs[place].argmax() == token) for place, token in enumerate(prompt[1:])] + [True]
    (echoed,) = nothing["choices"]
    assert (echoed["text"], echoed["finish_reason"], nothing["usage"]["completion_tokens"]) == (PROMPT, "length", 0)
    assert echoed["logprobs"]["token_logprobs"] == pytest.approx(
        scored["choices"][0]["logprobs"]["token_logprobs"][:-1], abs=1e-4
    )
    words = zip(echoed["logprobs"]["tokens"], echoed["logprobs"]["text_offset"], strict=True)
    assert all(PROMPT[place:].lstrip().startswith(word) for word, place in words)

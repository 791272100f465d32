"""All that a person can do with a model, done with one that others trained: SmolLM2-135M in Q4_1."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from engine.doors.serve import Server, open_socket
from engine.loading import activations
from engine.loop.engine import Engine
from engine.protocol import ChatMessage, LoadOptions, Sampling, keys
from engine.protocol.lab import Column
from engine.services.client import EngineClient
from engine.services.experiments.compare.columns import ComparedPrompt, ComparisonRequest
from engine.services.experiments.compare.comparison import compare
from engine.services.experiments.experiment import Lab
from engine.services.experiments.lab import ALL
from engine.services.experiments.laboratory import run
from engine.services.experiments.roofline.report import roofline
from engine.services.quantise.make import make
from engine.services.quantise.plan import MakePlan
from engine.services.residency import Policy
from tests.engine.doors.network.fake import FakeProbes
from tests.kit.servers import TOKEN
from tests.real.smollm2 import QUESTION, unpacked

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
STORY = [ChatMessage.of("user", "Tell me a short story about a harbour, a storm and a lamp.")]


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVASIR_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def client(smollm2: Path) -> Iterator[EngineClient]:
    with EngineClient() as made:
        made.load(str(smollm2), "", LoadOptions(device="cpu"))
        yield made


def said(client: EngineClient, question: list[ChatMessage], **sampling: Any) -> str:
    loaded = client.model
    assert loaded.files is not None
    return loaded.files.tokenizer.decode(client.answer(loaded.encode_prompt(question), Sampling(**sampling)).ids, True)


@pytest.mark.parametrize("experiment", ALL, ids=lambda each: each.page.name)
def test_every_experiment_runs_or_says_what_it_needs(client: EngineClient, experiment: Any) -> None:
    refusal = experiment.refuses(client.model, client.state())
    if experiment.page.name == "heads":
        assert refusal is not None
        assert "no EAGLE head" in refusal.why
        return
    assert refusal is None
    result = run(Lab(client, pairs=1, budget=1.0), experiment, lambda line: None)
    assert result.headline
    assert result.figures


def test_a_window_needs_its_sinks(client: EngineClient) -> None:
    """As Xiao et al. found of trained models, and the bundled one does not show: most of the loss goes with them."""
    window = next(each for each in ALL if each.page.name == "window")
    result = run(Lab(client, pairs=1, budget=1.0), window, lambda line: None)
    (perplexities,) = [figure for figure in result.figures if "perplexity" in figure.effects[-1].metric.title.lower()]
    assert window.page.sides == ["window alone", "window + 4 sinks", "full cache"]
    alone, with_sinks, full = (side[0] for side in perplexities.runs)
    assert alone > 1.3 * with_sinks
    assert with_sinks < 1.2 * full


def test_columns_are_compared(client: EngineClient, smollm2: Path) -> None:
    columns = tuple(
        Column(name=bits, model=str(smollm2), draft="", set={keys.ACTIVATIONS: f"{bits}bit"})
        for bits in ("32", "8", "16")
    )
    text = "\n".join(turn.content for turn in activations.conversation()[:20])
    asked = ComparisonRequest(columns, (ComparedPrompt(QUESTION[0].content),), text, tokens=12, pairs=1, device="cpu")
    result = compare(asked, lambda line: None)
    eight, sixteen = (quality for quality in result.quality if quality is not None)
    assert sixteen.kl < eight.kl < 0.02
    assert sixteen.same_top > 0.95


def test_the_roofline_is_drawn(client: EngineClient) -> None:
    found = roofline(client)
    assert 80e6 < found.weights < 120e6, "what a token reads of the file's 98 MB"
    assert found.limit > 0
    assert found.points


@pytest.mark.parametrize("method", ["ngram", "exit", "skip", "auto"])
def test_drafts_change_no_text(client: EngineClient, method: str) -> None:
    sampling = {"temperature": 0.8, "seed": 5, "max_tokens": 48}
    client.set(keys.BATCH_INVARIANT, True)
    try:
        client.set(keys.SPECULATION, "off")
        plain = said(client, STORY, **sampling)
        client.set(keys.SPECULATION, method)
        assert said(client, STORY, **sampling) == plain
    finally:
        client.set(keys.SPECULATION, "auto")
        client.set(keys.BATCH_INVARIANT, False)


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4", "kivi"])
def test_the_answer_stands_with_every_kind_of_cache(client: EngineClient, kind: str) -> None:
    client.set(keys.KV_KIND, kind)
    try:
        assert "Paris" in said(client, QUESTION, temperature=0.0, max_tokens=24)
    finally:
        client.set(keys.KV_KIND, "16bit")


@pytest.fixture(scope="module")
def plain(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file's weights in 16 bits, as a folder that models are made of."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("plain") / "smollm2"
    model = unpacked(smollm2).to(torch.bfloat16)
    model.config.dtype = "bfloat16"
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("to", ["gptq", "gguf-q8_0"])
def test_models_made_of_it_answer(plain: Path, tmp_path: Path, to: str) -> None:
    plan = MakePlan(plain, to, samples=8, length=256, out=tmp_path / "made", device="cpu")
    made = make(plan, lambda progress: None, lambda: False)
    with EngineClient() as client:
        client.load(str(made), "", LoadOptions(device="cpu", context=512))
        assert "Paris" in said(client, QUESTION, temperature=0.0, max_tokens=24)


def test_openais_client_gets_the_answer(smollm2: Path) -> None:
    policy = Policy(on_demand=True, options=LoadOptions(device="cpu", context=512), default=str(smollm2))
    server = Server(open_socket("127.0.0.1", 0), TOKEN, lambda emit: Engine(emit, "cpu"), FakeProbes(), False, policy)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    try:
        assert ready.wait(300)
        url = f"http://127.0.0.1:{server.port}/v1"
        with openai.OpenAI(base_url=url, api_key=TOKEN, max_retries=0, timeout=300) as api:
            messages: Any = [{"role": "user", "content": "Name the capital of France."}]
            asked: Any = {"model": "", "messages": messages, "temperature": 0, "max_completion_tokens": 24}
            first, again = (api.chat.completions.create(**asked).choices[0].message.content for _ in range(2))
            assert "Paris" in first
            stream = api.chat.completions.create(**asked, stream=True)
            # One row after cached pages is computed otherwise than a whole prompt, which may change the words.
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == again
    finally:
        server.stop()
        thread.join(300)

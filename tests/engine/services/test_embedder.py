"""The embedding model next to the one that answers: what it computes, how it gives way, when it goes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from engine.base import stopping
from engine.base.errors import CheckpointError
from engine.library.paths import ModelNotFound
from engine.protocol import EmbeddedTexts, EmbedTexts, TextEmbeddings, operations
from engine.protocol.embedding import TextKind
from engine.services import embedder as module
from engine.services.client import EngineClient, EngineError
from engine.services.embedder import AT_ONCE, Embedder
from engine.services.operations import OperationFailed, perform
from tests.broken_models import check_sentence
from tests.kit.checkpoints import LETTERS, write_model, write_small

LENGTHS = (1, 5, 9, 30, 48, 2, 7, 11, 3, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = BertConfig(
        vocab_size=len(LETTERS) + 1,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=48,
        initializer_range=0.3,
    )
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-bert", lambda: BertModel(config), noise=0.3)


@pytest.fixture
def embedder() -> Iterator[Embedder]:
    made = Embedder()
    yield made
    made.close()


def text_of(length: int) -> str:
    return "".join(LETTERS[(7 * place + length) % len(LETTERS)] for place in range(length))


TEXTS = [text_of(length) for length in LENGTHS]


def run(
    embedder: Embedder, folder: Path, texts: list[str] = TEXTS, kind: TextKind = ""
) -> tuple[np.ndarray, TextEmbeddings, list[EmbeddedTexts]]:
    events: list[EmbeddedTexts] = []
    known = embedder.embed(str(folder), texts, kind, events.append)
    vectors = np.frombuffer(b"".join(event.vectors for event in events), "<f4")
    return vectors.reshape(-1, known.dimensions), known, events


def expected(folder: Path, texts: list[str]) -> np.ndarray:
    """The means of transformers' states, at length 1."""
    model = BertModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        rows = [
            model(torch.tensor([[LETTERS.index(letter) for letter in text]])).last_hidden_state[0].mean(0)
            for text in texts
        ]
    found = torch.stack(rows)
    return (found / found.norm(dim=1, keepdim=True)).numpy()


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, whatever the processor of the machine multiplies in."""
    whole = module.LoadOptions
    monkeypatch.setattr(module, "LoadOptions", lambda **options: whole(dtype="float32", **options))


def test_as_transformers_has_it_some_texts_at_a_time(embedder: Embedder, folder: Path) -> None:
    found, known, events = run(embedder, folder)
    np.testing.assert_allclose(found, expected(folder, TEXTS), atol=5e-6)
    assert [event.first for event in events] == [0, AT_ONCE]
    assert (known.model, known.dimensions, known.tokens) == ("tiny-bert", 32, sum(LENGTHS))
    assert len(known.fingerprint) == 32
    assert embedder.bytes > 4 * 32 * len(LETTERS)
    again, same, _ = run(embedder, folder, TEXTS[:1])
    np.testing.assert_allclose(again, found[:1], atol=1e-6)
    assert same.fingerprint == known.fingerprint
    cut, _, _ = run(embedder, folder, [text_of(48) + "abc"])
    np.testing.assert_allclose(cut[0], expected(folder, [text_of(48)])[0], atol=5e-6)
    nothing, known, events = run(embedder, folder, [])
    assert (len(nothing), known.tokens, events) == (0, 0, [])


def test_before_a_text_stands_what_its_makers_put_there(embedder: Embedder, folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for file in folder.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    prompts = {"prompts": {"query": "q:", "passage": "p:"}}
    (own / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    for kind, words in (("query", "q:"), ("document", "p:"), ("", "")):
        found, _, _ = run(embedder, own, ["abc"], kind)
        np.testing.assert_allclose(found, expected(own, [f"{words}abc"]), atol=5e-6)


def test_it_goes_when_no_text_comes_and_comes_back(folder: Path) -> None:
    embedder = Embedder(idle_seconds=0.05)
    run(embedder, folder, TEXTS[:1])
    (thread,) = (each for each in threading.enumerate() if isinstance(each, threading.Timer))
    thread.join(60)
    assert embedder.bytes == 0
    run(embedder, folder, TEXTS[:1])
    embedder.close()
    assert embedder.bytes == 0
    with pytest.raises(OperationFailed, match="engine stops"):
        run(embedder, folder)


def test_another_model_takes_its_place(embedder: Embedder, folder: Path, tmp_path: Path) -> None:
    config = BertConfig(vocab_size=len(LETTERS) + 1, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                        num_attention_heads=2, max_position_embeddings=48)  # fmt: skip
    other = write_model(tmp_path / "other", lambda: BertModel(config))
    first, second = run(embedder, folder, TEXTS[:1])[1], run(embedder, other, TEXTS[:1])[1]
    assert (second.model, second.dimensions) == ("other", 16)
    assert first.fingerprint != second.fingerprint


def test_what_makes_no_embeddings_is_refused(embedder: Embedder, folder: Path, tmp_path: Path) -> None:
    chat = write_small(tmp_path / "chat")
    with pytest.raises(OperationFailed) as refused:
        run(embedder, chat)
    assert "makes no embeddings" in str(refused.value)
    check_sentence(str(refused.value))
    with pytest.raises((ModelNotFound, CheckpointError)) as gone:
        run(embedder, tmp_path / "gone")
    check_sentence(str(gone.value))
    assert embedder.bytes == 0


def test_memory_that_is_not_there_is_a_sentence(
    embedder: Embedder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.loading.plan.free_bytes", lambda device: 1000)
    with pytest.raises(EngineError, match="does not fit") as refused:
        run(embedder, folder)
    check_sentence(str(refused.value))
    assert embedder.bytes == 0
    monkeypatch.undo()
    run(embedder, folder, TEXTS[:1])


def test_a_stop_ends_it_after_some_texts(embedder: Embedder, folder: Path) -> None:
    stop, events = stopping.Stop(), list[EmbeddedTexts]()

    def tell(event: EmbeddedTexts) -> None:
        events.append(event)
        stop.set()

    with stopping.stoppable(stop), pytest.raises(stopping.Stopped):
        embedder.embed(str(folder), TEXTS, "", tell)
    assert [event.first for event in events] == [0]
    run(embedder, folder)


def test_it_gives_way_to_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    embedder = Embedder(lambda: True)
    monkeypatch.setattr(stopping.current(), "wait", rests.append)
    began = time.monotonic()
    _, _, events = run(embedder, folder, TEXTS[:3])
    took = time.monotonic() - began
    embedder.close()
    assert [event.first for event in events] == [0, 1, 2]
    assert len(rests) == 2, "between two texts, and not after the last"
    assert 0 < sum(rests) <= module.WAITS * took


@pytest.mark.parametrize(("way", "end"), [("measured", ""), ("stopped", "Stopped"), ("closed", "OperationFailed")])
def test_it_waits_for_measurements_until_they_or_it_end(folder: Path, way: str, end: str) -> None:
    measured, asked, stop, ends = [True], threading.Event(), stopping.Stop(), list[str]()

    def alone() -> bool:
        asked.set()
        return measured[0]

    def work() -> None:
        try:
            with stopping.stoppable(stop):
                run(embedder, folder, TEXTS[:1])
            ends.append("")
        except (stopping.Stopped, OperationFailed) as error:
            ends.append(type(error).__name__)

    embedder = Embedder(alone=alone)
    thread = threading.Thread(target=work)
    thread.start()
    assert asked.wait(60)
    embedder.look()  # it is still measured
    assert (embedder.bytes, ends) == (0, [])
    if way == "measured":
        measured[0] = False
        embedder.look()
    elif way == "stopped":
        stop.set()
    else:
        embedder.close()
    thread.join(60)
    assert ends == [end]
    embedder.close()


def test_an_engine_that_failed_is_begun_again(
    embedder: Embedder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(embedder, folder, TEXTS[:1])

    def fails(*_: Any) -> None:
        raise EngineError("It failed. Try again.")

    monkeypatch.setattr(EngineClient, "embed", fails)
    with pytest.raises(EngineError):
        run(embedder, folder)
    assert embedder.bytes == 0
    monkeypatch.undo()
    run(embedder, folder, TEXTS[:1])


def test_two_callers_take_turns(embedder: Embedder, folder: Path) -> None:
    order: list[str] = []
    began = threading.Event()

    def first(event: EmbeddedTexts) -> None:
        order.append("long")
        began.set()

    many = threading.Thread(target=lambda: embedder.embed(str(folder), ["abc"] * 40 * AT_ONCE, "", first))
    many.start()
    assert began.wait(60)
    embedder.embed(str(folder), ["a"], "", lambda event: order.append("short"))
    many.join(60)
    assert order.index("short") < len(order) - 1


def test_in_a_terminal_it_is_an_operation(folder: Path) -> None:
    events: list[EmbeddedTexts] = []
    before = set(threading.enumerate())
    request = EmbedTexts(model=str(folder), texts=["abc"])
    known = perform(operations.EMBED_TEXTS, request, events.append)
    assert known.dimensions == len(events[0].vectors) // 4
    assert not {thread for thread in set(threading.enumerate()) - before if thread.name == "engine"}, "it ended with it"

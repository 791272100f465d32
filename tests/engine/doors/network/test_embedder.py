"""The embedding model next to the one that answers, over the websocket and HTTP."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest
from transformers import BertConfig, BertModel
from websockets.sync.client import connect

from engine import protocol as p
from engine.protocol import operations
from engine.services.experiments.served import served_engine
from tests.kit.checkpoints import LETTERS, write_model, write_small
from tests.kit.servers import TOKEN, Client, Serving


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model that answers, and one that embeds."""
    top = tmp_path_factory.mktemp("models")
    config = BertConfig(vocab_size=len(LETTERS) + 1, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                        num_attention_heads=2, max_position_embeddings=64)  # fmt: skip
    return write_small(top / "answers"), write_model(top / "tiny-bert", lambda: BertModel(config))


@pytest.fixture
def serving(folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    made = Serving(folders[0])
    yield made
    made.stop()


def call(client: Client, folder: Path | str, texts: list[str]) -> list[p.Message]:
    """What the engine says of the call, to its end."""
    send(client, folder, texts)
    return heard(client)


def send(client: Client, folder: Path | str, texts: list[str]) -> None:
    request = msgspec.Raw(msgspec.json.encode(p.EmbedTexts(model=str(folder), texts=texts)))
    client.send(p.Call(id="c", operation=operations.EMBED_TEXTS.name, request=request))


def heard(client: Client) -> list[p.Message]:
    found: list[p.Message] = []
    while not found or isinstance(found[-1], p.CallEvent):
        message = client.receive()
        if getattr(message, "id", "") == "c":
            found.append(message)
    return found


def test_both_models_stay_and_each_is_asked_by_its_name(serving: Serving, folders: tuple[Path, Path]) -> None:
    port = serving.server.port
    with (
        connect(f"ws://127.0.0.1:{port}/ws") as socket,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300
        ) as http,
    ):
        client = Client(socket)
        if client.welcome.loaded is None:
            client.until(p.Loaded)
        body = {"input": ["abc", "de"], "model": "tiny-bert", "encoding_format": "base64"}
        assert http.post("/v1/embeddings", json=body).status_code == 404, "nobody asked for it yet"
        *events, answer = call(client, folders[1], ["abc", "de"])
        assert isinstance(answer, p.CallAnswer)
        known = operations.EMBED_TEXTS.read_answer(answer.answer)
        assert (known.model, known.dimensions, known.tokens) == ("tiny-bert", 16, 5)
        (event,) = (operations.EMBED_TEXTS.read_event(each.event) for each in events if isinstance(each, p.CallEvent))
        vectors = np.frombuffer(event.vectors, "<f4").reshape(2, 16)
        data = http.post("/v1/embeddings", json=body).raise_for_status().json()
        found = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in data["data"]]
        np.testing.assert_allclose(found, vectors, atol=1e-5)
        assert (data["model"], data["usage"]["prompt_tokens"]) == ("tiny-bert", 5)
        ollama = http.post("/api/embed", json={"model": "tiny-bert:latest", "input": ["abc", "de"]}).json()
        np.testing.assert_allclose(ollama["embeddings"], vectors, atol=1e-5)
        cohere = http.post("/v2/embed", json={"model": "tiny-bert", "texts": ["abc", "de"]}).json()
        np.testing.assert_allclose(cohere["embeddings"]["float"], vectors, atol=1e-5)
        assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["answers", "tiny-bert"]
        assert http.post("/v1/embeddings", json={"input": "abc"}).json()["model"] == "answers"
        short = http.post("/v1/embeddings", json=body | {"dimensions": 17})
        assert short.json()["error"]["param"] == "dimensions"
        loaded = serving.engine.loaded
        assert loaded is not None
        assert loaded.card.name == "answers"
        held = serving.server.residency.embedder.bytes
        assert held > 0
        assert f'kvasir_memory_bytes{{owner="embedder",scope="process"}} {held}\n' in http.get("/metrics").text
        embedder = serving.server.residency.embedder
        with served_engine(serving.server.hub, serving.server.residency):
            send(client, folders[1], ["abc"])
            while not embedder._waiting:
                time.sleep(0.01)
        assert isinstance(heard(client)[-1], p.CallAnswer), "what waited for the end of a measurement"
        (gone,) = call(client, folders[1] / "gone", ["abc"])
        assert isinstance(gone, p.Error)
        assert "gone" in gone.message

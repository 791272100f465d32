"""Embeddings, by OpenAI's and Ollama's own clients."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import ollama
import openai
import pytest

from engine.doors.http.embedding import AT_ONCE, MOST_INPUTS
from engine.formats.pooling import PROMPTS
from engine.loop.commands import AddRequest
from tests.engine.doors.network.conftest import Running
from tests.engine.doors.network.fake import embedding

TEXTS = ["abc", "Grüße", "abc def"]


def ids(running: Running, text: str) -> list[int]:
    found: list[int] = running.engine.loaded.files.tokenizer.encode(text)
    return found


def expected(running: Running, texts: Sequence[str], dimensions: int = 8) -> np.ndarray:
    rows = np.stack([embedding(ids(running, text)) for text in texts])[:, :dimensions]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_openais_client_gets_a_vector_for_each_text(api: openai.OpenAI, running: Running, form: Any) -> None:
    """Without a form it asks for base64, and unpacks that itself."""
    given: dict[str, Any] = {} if form is None else {"encoding_format": form}
    done = api.embeddings.create(model="tiny", input=TEXTS, user="me", **given)
    assert [(each.index, each.object) for each in done.data] == [(0, "embedding"), (1, "embedding"), (2, "embedding")]
    if form == "base64":
        found = np.stack([np.frombuffer(base64.b64decode(str(each.embedding)), "<f4") for each in done.data])
    else:
        found = np.array([each.embedding for each in done.data])
    np.testing.assert_allclose(found, expected(running, TEXTS), rtol=1e-6)
    count = sum(len(ids(running, text)) for text in TEXTS)
    assert (done.model, done.usage.prompt_tokens, done.usage.total_tokens) == ("tiny", count, count)
    assert [command.pooling for command in running.asked] == ["mean"] * 3


def test_ids_and_dimensions(api: openai.OpenAI, running: Running) -> None:
    numbers = [ids(running, text) for text in TEXTS]
    for given, texts in ((numbers, TEXTS), (numbers[1], TEXTS[1:2]), (TEXTS[0], TEXTS[:1])):
        done = api.embeddings.create(model="", input=given, dimensions=3)
        found = np.array([each.embedding for each in done.data])
        assert found.shape == (len(texts), 3)
        np.testing.assert_allclose(found, expected(running, texts, 3), rtol=1e-6)


def test_the_models_own_pooling_unless_another_is_asked_for(api: openai.OpenAI, running: Running) -> None:
    running.engine.loaded.pooling = "last"
    (model,) = api.models.list()
    assert (model.model_extra or {})["capabilities"] == ["embedding"]
    api.embeddings.create(model="tiny", input="abc")
    api.embeddings.create(model="tiny", input="abc", extra_body={"pooling": "cls"})
    assert [command.pooling for command in running.asked] == ["last", "cls"]


@pytest.mark.parametrize("name", ["normalize", "use_activation"])
def test_vectors_keep_their_length_where_that_is_asked_for(api: openai.OpenAI, running: Running, name: str) -> None:
    done = api.embeddings.create(model="tiny", input="abc", dimensions=3, extra_body={name: False})
    np.testing.assert_allclose(done.data[0].embedding, embedding(ids(running, "abc"))[:3], rtol=1e-6)


def test_a_conversation_is_embedded_as_the_template_writes_it(http: httpx.Client, running: Running) -> None:
    body: Any = {"messages": [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "def"}]}
    for path, more in (("/v1/embeddings", {}), ("/invocations", {"encoding_format": "float"})):
        for opens in (False, True):
            running.engine.seen.clear()
            http.post(path, json=body | {"add_generation_prompt": opens} | more).raise_for_status()
            (command,) = running.asked
            written = http.post(
                "/tokenize", json=body | {"add_generation_prompt": opens, "continue_final_message": False}
            )
            assert (list(command.prompt_ids), command.pooling) == (written.json()["tokens"], "mean")


def test_a_text_is_cut_on_the_side_that_is_asked_for(http: httpx.Client, running: Running) -> None:
    whole = ids(running, "abc def")
    for side, kept in (("left", whole[-3:]), ("right", whole[:3])):
        running.engine.seen.clear()
        body = {"input": "abc def", "truncate_prompt_tokens": 3, "truncation_side": side}
        http.post("/v1/embeddings", json=body).raise_for_status()
        assert list(running.asked[0].prompt_ids) == kept


def test_cohere_tells_each_form(http: httpx.Client, running: Running) -> None:
    forms = ["float", "base64", "binary", "ubinary"]
    body = {"model": "tiny", "texts": TEXTS, "input_type": "search_query", "embedding_types": forms, "max_tokens": 60}
    done = http.post("/v2/embed", json=body).raise_for_status().json()
    wanted, found = expected(running, TEXTS), done["embeddings"]
    np.testing.assert_allclose(found["float"], wanted, rtol=1e-6)
    unpacked = [np.frombuffer(base64.b64decode(each), "<f4") for each in found["base64"]]
    np.testing.assert_allclose(unpacked, wanted, rtol=1e-6)
    assert [f"{bits:08b}" for (bits,) in found["ubinary"]] == ["".join("01"[int(x > 0)] for x in row) for row in wanted]
    assert found["binary"] == [[bits - 128] for (bits,) in found["ubinary"]]
    count = sum(len(ids(running, text)) for text in TEXTS)
    assert done["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": count}}
    parts = {"inputs": [{"content": [{"type": "text", "text": text}]} for text in TEXTS], "output_dimension": 3}
    np.testing.assert_allclose(
        http.post("/v2/embed", json=parts).json()["embeddings"]["float"], expected(running, TEXTS, 3), rtol=1e-6
    )


def test_coheres_kinds_of_text_have_the_words_of_their_makers(
    http: httpx.Client, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PROMPTS).write_text(json.dumps({"prompts": {"query": "find: ", "clustering": "group: "}}))
    command = running.engine.loaded.command
    monkeypatch.setattr(running.engine.loaded, "command", command._replace(path=str(tmp_path)))
    for kind, prefix in (("search_query", "find: "), ("clustering", "group: "), ("search_document", "")):
        running.engine.seen.clear()
        http.post("/v2/embed", json={"texts": ["abc"], "input_type": kind}).raise_for_status()
        assert list(running.asked[0].prompt_ids) == ids(running, prefix + "abc")


def test_cohere_cuts_what_is_too_long_as_it_is_told(http: httpx.Client, running: Running) -> None:
    whole = ids(running, "abc " * 40)
    for side, kept in (("START", whole[-64:]), ("END", whole[:64])):
        running.engine.seen.clear()
        http.post("/v2/embed", json={"texts": ["abc " * 40], "truncate": side}).raise_for_status()
        assert list(running.asked[0].prompt_ids) == kept
    assert http.post("/v2/embed", json={"texts": ["abc " * 40], "truncate": "NONE"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "texts"),
        ({"texts": ["a"], "inputs": [{"content": []}]}, "texts"),
        ({"texts": [""]}, "texts"),
        ({"inputs": [{"content": [{"type": "image_url"}]}]}, "inputs[0].content"),
        ({"texts": ["a"], "embedding_types": ["int8"]}, "embedding_types[0]"),
        ({"images": ["a"]}, "images"),
        ({"texts": ["a"], "max_tokens": 65}, "truncate_prompt_tokens"),
    ],
)
def test_coheres_requests_that_are_refused(refused: httpx.Client, body: Any, param: str) -> None:
    answer = refused.post("/v2/embed", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_many_inputs_are_read_some_at_a_time(running: Running) -> None:
    """In order, and no more of them at once than a chat may wait for."""
    texts = [f"a{number}" for number in range(2 * AT_ONCE + 1)]
    waiting: list[int] = []
    submit = running.engine.submit

    def counted(command: Any) -> None:
        waiting.append(running.server.hub.answering)
        submit(command)

    running.engine.submit = counted
    with running.http() as http:
        done = http.post("/embeddings/", json={"input": texts}).raise_for_status().json()
    found = np.array([each["embedding"] for each in done["data"]])
    np.testing.assert_allclose(found, expected(running, texts), rtol=1e-6)
    assert max(waiting) == AT_ONCE


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"input": ""}, "input", "is empty"),
        ({"input": []}, "input", "no input"),
        ({"input": ["abc", ""]}, "input", "input[1] is empty"),
        ({"input": [[7], []]}, "input", "input[1] is empty"),
        ({"input": [7, [8]]}, "input", "texts only"),
        ({"input": [402]}, "input", "out of vocabulary"),
        ({"input": ["a"] * (MOST_INPUTS + 1)}, "input", "Send fewer"),
        ({"input": "abc " * 40}, "input", "maximum context length is 64 tokens, and input has"),
        ({"input": "abc", "truncate_prompt_tokens": 65}, "truncate_prompt_tokens", "is 1 to 64, or -1"),
        ({"input": "abc", "dimensions": 9}, "dimensions", "1 to 8 dimensions"),
        ({"input": "abc", "dimensions": 0}, "dimensions", "1 to 8 dimensions"),
        ({"input": "abc", "encoding_format": "hex"}, "encoding_format", "not understood"),
        ({"input": "abc", "pooling": "max"}, "pooling", "not understood"),
        ({"input": "abc", "dimension": 3}, "dimension", "Did you mean 'dimensions'?"),
        ({}, "input", "no input"),
    ],
)
def test_openais_shape_of_a_refusal(refused: httpx.Client, body: Any, param: str, said: str) -> None:
    answer = refused.post("/v1/embeddings", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert said in error["message"]


def test_strangers_and_other_models(refused: httpx.Client) -> None:
    assert refused.post("/v1/embeddings", json={"input": "abc", "model": "other"}).status_code == 404
    for path in ("/v1/embeddings", "/api/embed", "/api/embeddings"):
        answer = refused.post(path, json={"input": "abc", "model": "tiny"}, headers={"Authorization": ""})
        assert answer.status_code == 401


def test_a_server_that_stops_ends_the_request(running: Running) -> None:
    submit = running.engine.submit

    def stops(command: Any) -> None:
        if isinstance(command, AddRequest):
            running.server.stop()
        else:
            submit(command)

    running.engine.submit = stops
    with running.http() as http:
        answer = http.post("/v1/embeddings", json={"input": "abc"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")


def test_ollamas_client(llama: ollama.Client, running: Running) -> None:
    done = llama.embed("tiny:latest", TEXTS, options={"num_ctx": 64, "temperature": 0.1}, keep_alive="5m")
    np.testing.assert_allclose(np.array(done.embeddings), expected(running, TEXTS), rtol=1e-6)
    assert done.prompt_eval_count == sum(len(ids(running, text)) for text in TEXTS)
    assert (done.model, done.total_duration is not None) == ("tiny:latest", True)
    short = llama.embed("tiny", TEXTS[0], dimensions=3)
    np.testing.assert_allclose(np.array(short.embeddings), expected(running, TEXTS[:1], 3), rtol=1e-6)
    assert list(llama.embed("tiny", []).embeddings) == []
    older = llama.embeddings("tiny", TEXTS[1])
    np.testing.assert_allclose(np.array(older.embedding), expected(running, TEXTS[1:2])[0], rtol=1e-6)
    running.engine.loaded.pooling = "mean"
    assert llama.show("tiny").capabilities == ["embedding"]


def test_ollama_cuts_what_is_too_long_unless_told_not_to(llama: ollama.Client, running: Running) -> None:
    long = "abc " * 40
    llama.embed("tiny", [long])
    (cut,) = running.asked
    assert list(cut.prompt_ids) == ids(running, long)[:64]
    with pytest.raises(ollama.ResponseError, match="maximum context length") as refusal:
        llama.embed("tiny", [long], truncate=False)
    assert refusal.value.status_code == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": [""]}, "input is empty"),
        ({"input": "abc", "dimensions": 9}, "1 to 8 dimensions"),
        ({"input": "abc", "dimensions": -1}, "1 to 8 dimensions"),
        ({"input": 7}, "not understood"),
        ({"input": ["a"] * (MOST_INPUTS + 1)}, "Send fewer"),
        ({"input": "abc", "model": "other"}, "not loaded"),
    ],
)
def test_ollamas_shape_of_a_refusal(refused: httpx.Client, body: Any, said: str) -> None:
    answer = refused.post("/api/embed", json={"model": "tiny", **body})
    assert answer.status_code in (400, 404)
    assert list(answer.json()) == ["error"]
    assert said in answer.json()["error"]


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_llamacpps_own_form(running: Running, path: str) -> None:
    with running.http() as http:
        told = http.post(path, json={"content": [*TEXTS, ids(running, TEXTS[0])]}).raise_for_status().json()
        assert http.post(path, json={"content": ""}).json()["error"]["param"] == "input"
    assert [each["index"] for each in told] == [0, 1, 2, 3]
    rows = [each["embedding"][0] for each in told]
    np.testing.assert_allclose(rows, expected(running, [*TEXTS, TEXTS[0]]), atol=1e-6)

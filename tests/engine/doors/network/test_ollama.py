"""Ollama's interface, by Ollama's own client."""

from __future__ import annotations

import json
from typing import Any

import httpx
import ollama
import pytest

from engine.doors.http.fields import BadField
from engine.doors.http.ollama.routes import ELSEWHERE
from engine.doors.http.ollama.types import OllamaChat
from engine.protocol import Thinking, Unload
from tests.engine.doors.network.conftest import Running

MESSAGES: Any = [{"role": "user", "content": "abc"}]


def test_chat_whole_and_streamed(llama: ollama.Client, running: Running) -> None:
    options = {"num_predict": 6, "seed": 3, "temperature": 0.5, "stop": ["x"], "repeat_penalty": 1.1, "num_ctx": 64}
    done = llama.chat("tiny:latest", MESSAGES, options=options, keep_alive="5m")
    assert (done.message.role, done.message.content, done.done) == ("assistant", running.expected, True)
    assert (done.prompt_eval_count, done.eval_count) == (len(running.last.prompt_ids), 6)
    sampling = running.last.sampling
    assert (sampling.seed, sampling.stop, sampling.temperature, sampling.max_tokens) == (3, ["x"], 0.5, 6)
    assert sampling.repetition_penalty == 1.1
    parts = list(llama.chat("tiny", MESSAGES, stream=True))
    assert "".join(part.message.content or "" for part in parts) == running.expected
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "stop"
    assert parts[-1].total_duration is not None


def test_an_answer_goes_on_from_the_assistants_words(llama: ollama.Client, running: Running) -> None:
    llama.chat("tiny", [*MESSAGES, {"role": "assistant", "content": "I"}])
    assert running.last.prefilled


def test_generate(llama: ollama.Client, running: Running) -> None:
    done = llama.generate("tiny", "abc def", raw=True, options={"num_predict": 3})
    assert done.response == running.expected
    assert running.last.continues
    llama.generate("tiny", "abc", system="brief")
    rendered = running.engine.loaded.files.tokenizer.decode(running.last.prompt_ids, skip_special=False)
    assert rendered.startswith("<|im_start|>system\nbrief<|im_end|>\n<|im_start|>user\nabc<|im_end|>")


def test_models(llama: ollama.Client, running: Running) -> None:
    (model,) = llama.list().models
    assert model.model == "tiny"
    assert model.details is not None
    (there,) = llama.ps().models
    assert (there.name, there.context_length) == ("tiny", 64)
    shown = llama.show("tiny:latest")
    assert shown.capabilities == ["completion"]
    assert shown.modelinfo is not None
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == 64


def test_nothing_is_asked_but_that_the_model_be_there_or_go(llama: ollama.Client, running: Running) -> None:
    assert llama.generate("tiny").done_reason == "load"
    assert llama.generate("tiny", keep_alive=0).done_reason == "unload"
    assert llama.ps().models == []
    (gone,) = [command for command in running.engine.seen if isinstance(command, Unload)]
    assert (gone.path, gone.idle) == ("/models/tiny", True)


def test_clients_find_the_server_without_a_token(refused: httpx.Client) -> None:
    stranger = {"Authorization": ""}
    assert refused.head("/", headers=stranger).status_code == 200
    assert refused.get("/api/version", headers=stranger).json()["version"]
    for path in ("/api/tags", "/api/ps"):
        assert refused.get(path, headers=stranger).status_code == 401
    for path in ("/api/chat", "/api/generate", "/api/show"):
        answer = refused.post(path, json={"model": "tiny"}, headers=stranger)
        assert (answer.status_code, list(answer.json())) == (401, ["error"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "other"}, "not loaded"),
        ({"tools": [{"type": "function"}]}, "has no name"),
        ({"options": {"temperatur": 1}}, "temperature"),
        ({"messages": [{"role": "user", "content": "", "images": ["?"]}]}, "base64"),
        ({"keep_alive": "soon"}, "duration"),
        ({"options": {"num_predict": 0.5}}, "max_tokens"),
        ({"options": {"logit_bias": {"999": 1}}}, "402 tokens, from 0 on"),
    ],
)
def test_what_is_not_served_is_said_in_ollamas_shape(refused: httpx.Client, fields: Any, said: str) -> None:
    answer = refused.post("/api/chat", json={"model": "tiny", "messages": MESSAGES, **fields})
    assert answer.status_code in (400, 404)
    assert said in answer.json()["error"]


def test_the_rest_of_the_interface_says_what_to_do(refused: httpx.Client) -> None:
    for name, instead in ELSEWHERE.items():
        answer = refused.post(f"/api/{name}".replace("{digest:path}", "sha256:0"), json={})
        assert (answer.status_code, answer.json()["error"].endswith(instead)) == (501, True)


def test_an_error_within_a_stream_is_its_last_line(llama: ollama.Client, running: Running) -> None:
    running.engine.gate.clear()
    with running.http() as http, http.stream("POST", "/api/chat", json={"model": "tiny", "messages": MESSAGES}) as told:
        running.server.stop()
        lines = [line for line in told.iter_lines() if line]
    assert list(json.loads(lines[-1])) == ["error"]


def test_thinking_and_durations() -> None:
    def asked(**fields: Any) -> OllamaChat:
        return OllamaChat(model="m", **fields)

    assert asked(think=True).thinking == Thinking(on=True)
    assert asked(think="low").thinking == Thinking(effort="low")
    assert [asked(keep_alive=given).ttl for given in ("1h30m", "300ms", 10, -1, "-1m", 0, None)] == [
        5400, 0.3, 10, 0, 0, 0.05, None,
    ]  # fmt: skip
    with pytest.raises(BadField):
        _ = asked(keep_alive="5 m").ttl

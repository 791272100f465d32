"""llama.cpp's own interface: /completion, /props and /slots, its metrics, and what it adds to OpenAI's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from engine.doors.http.llamacpp.types import NEVER
from engine.doors.http.timings import AnswerPace
from engine.protocol import Delta, Prefill, TokenInfo
from tests.engine.doors.network.conftest import Running


def events(http: httpx.Client, path: str, body: Any) -> list[dict[str, Any]]:
    lines = http.post(path, json={**body, "stream": True}).text.split("\n\n")
    told = [line.partition("data: ")[2] for line in lines]
    return [json.loads(line) for line in told if line and line != "[DONE]"]


def test_a_whole_completion(http: httpx.Client, running: Running) -> None:
    running.engine.says_length, running.engine.cached = True, 2
    body = {"prompt": "abc def", "n_predict": 3, "seed": 5, "stop": ["x"], "return_tokens": True, "n_probs": 2}
    told = http.post("/completion", json=body).json()
    assert (told["content"], told["stop"], told["stop_type"]) == (running.expected, True, "limit")
    prompt = running.last.prompt_ids
    assert (told["tokens"], told["prompt"]) == (prompt[::-1][:3], "abc def")
    assert (told["tokens_predicted"], told["tokens_evaluated"], told["tokens_cached"]) == (3, len(prompt), 2)
    assert (told["truncated"], told["has_new_line"], told["stopping_word"]) == (False, False, "")
    settings = told["generation_settings"]
    assert (settings["n_predict"], settings["seed"], settings["stop"], settings["n_probs"]) == (3, 7, ["x"], 2)
    assert (told["timings"]["prompt_n"], told["timings"]["predicted_n"]) == (len(prompt) - 2, 3)
    assert running.last.optimisations == {}
    first = told["completion_probabilities"][0]
    assert (first["id"], first["logprob"], len(first["top_logprobs"])) == (told["tokens"][0], -0.5, 2)
    few = http.post(
        "/completion", json={**body, "response_fields": ["timings/prompt_n", "stop", "no"], "cache_prompt": False}
    )
    few = few.json()
    assert running.last.optimisations == {"prefix_cache": False}
    assert few == {"timings/prompt_n": len(prompt) - 2, "stop": True}


def test_a_completion_in_parts(http: httpx.Client, running: Running) -> None:
    body = {"prompt": "abc def", "n_predict": 4, "return_progress": True, "timings_per_token": True}
    parts = events(http, "/completion", body | {"n_probs": 1, "post_sampling_probs": True})
    progress, parts = parts[:2], parts[2:]
    assert [each["prompt_progress"]["processed"] for each in progress] == [0, len(running.last.prompt_ids)]
    assert [each["timings"]["prompt_ms"] > 0 for each in progress] == [False, True]
    assert "".join(part["content"] for part in parts) == running.expected
    assert [part["stop"] for part in parts] == [False] * 4 + [True]
    assert [part["tokens_predicted"] for part in parts] == [1, 2, 3, 4, 4]
    assert all(len(part["tokens"]) == len(part["completion_probabilities"]) == 1 for part in parts[:-1])
    assert 0 < parts[0]["completion_probabilities"][0]["top_probs"][0]["prob"] < 1
    assert running.last.sampling.logprobs_drawn


def test_prompts_in_all_forms(http: httpx.Client, running: Running) -> None:
    ids = running.engine.loaded.files.tokenizer.encode("abc")
    given = [ids, "abc", {"prompt_string": "abc"}, {"content": [{"type": "text", "text": "abc"}]}, ["abc"]]
    told = http.post("/completion", json={"prompt": given}).json()
    assert [each["index"] for each in told] == [0, 1, 2, 3, 4]
    assert len({each["content"] for each in told}) == 1
    http.post("/completion", json={"prompt": [5, "abc", 6]}).raise_for_status()
    assert running.last.prompt_ids == [5, *running.engine.loaded.files.tokenizer.encode("abc", special=False), 6]


def test_tokens_are_barred(http: httpx.Client, running: Running) -> None:
    tokenizer = running.engine.loaded.files.tokenizer
    (a,) = tokenizer.encode("a", special=False)
    biases: Any = {"5": -1, "a": False, "b": True}
    for given in (biases, [[5, -1], ["a", False], [6, True]]):
        body = {"prompt": "abc", "logit_bias": given, "ignore_eos": True}
        told = http.post("/completion", json=body).json()["generation_settings"]["logit_bias"]
        assert told == [{"token": 5, "bias": -1}, {"token": a, "bias": None}, {"token": 2, "bias": None}]
        assert running.last.sampling.logit_bias == {5: -1, a: NEVER, 2: NEVER}


def test_a_bare_address_is_openais_where_a_model_is_named(http: httpx.Client) -> None:
    assert http.post("/completions", json={"prompt": "abc"}).json()["stop"]
    assert http.post("/completions", json={"prompt": "abc", "model": "tiny"}).json()["choices"]
    refused = http.post("/completions", json={"prompt": "", "model": "tiny"}).json()["error"]
    assert refused["code"] == "invalid_value"


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": []}, "prompt", "empty"),
        ({"prompt": [5, [6]]}, "prompt", "texts only"),
        ({"prompt": {"prompt_string": "<__media__>", "multimodal_data": ["aGk="]}}, "prompt", "tiny reads text only"),
        ({"prompt": {"content": [{"type": "input_audio"}]}}, "prompt.content[0].type", "'input_audio'"),
        ({"prompt": ["a", "b"], "return_progress": True}, "return_progress", "one prompt"),
        ({"logit_bias": {"999": 1}}, "logit_bias", "999"),
        ({"n_probs": 99}, "n_probs", "0 to 32"),
        ({"samplers": ["top_k"]}, "samplers", "not supported"),
        ({"t_max_predict_ms": 5}, "t_max_predict_ms", "not supported"),
        ({"prompt": "abc " * 40}, "prompt", "exceeds the available context size"),
    ],
)
def test_refusals_in_llamacpps_shape(http: httpx.Client, fields: Any, param: str, said: str) -> None:
    answer = http.post("/completion", json={"prompt": "abc", **fields})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, 400, param)
    assert said in error["message"]
    assert error["type"] == ("exceed_context_size_error" if "context size" in said else "invalid_request_error")


def test_props_and_slots(http: httpx.Client, running: Running) -> None:
    props = http.get("/props").json()
    assert (props["model_path"], props["default_generation_settings"]["n_ctx"]) == ("/models/tiny", 64)
    assert props["default_generation_settings"]["params"]["temperature"] == 1.0
    assert (props["chat_template"], props["modalities"]["vision"]) == (running.engine.template, False)
    assert not any(slot["is_processing"] for slot in http.get("/slots").json())
    running.engine.gate.clear()
    with http.stream("POST", "/completion", json={"prompt": "abc", "stream": True}):
        slots = http.get("/slots").json()
        assert (len(slots), [slot["id"] for slot in slots if slot["is_processing"]]) == (props["total_slots"], [0])
        running.engine.gate.set()
    running.engine.loaded = None
    assert http.get("/props").json()["error"]["type"] == "unavailable_error"


def test_metrics_by_llamacpps_names(http: httpx.Client, running: Running) -> None:
    http.post("/completion", json={"prompt": "abc def", "n_predict": 3}).raise_for_status()
    scraped = http.get("/metrics")
    found = dict(line.split(" ") for line in scraped.text.splitlines() if line.startswith("llamacpp:"))
    assert int(found["llamacpp:n_decode_total"]) == 3
    assert int(found["llamacpp:n_tokens_max"]) == 3 + len(running.last.prompt_ids)
    assert int(found["llamacpp:requests_processing"]) == 0
    assert int(scraped.headers["process-start-time-unix"]) > 0


def test_timings_and_progress_of_openais_interfaces(http: httpx.Client) -> None:
    told: Any = {"timings_per_token": True, "return_progress": True}
    chat: Any = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 3, **told}
    assert http.post("/v1/chat/completions", json=chat).json()["timings"]["predicted_n"] == 3
    chunks = events(http, "/v1/chat/completions", {**chat, "stream_options": {"include_usage": True}})
    progress = [chunk["prompt_progress"]["processed"] for chunk in chunks if "prompt_progress" in chunk]
    assert progress == [0, chunks[1]["prompt_progress"]["total"]]
    opening, *rest = chunks[2:]
    assert ("timings" in opening, rest[-1]["choices"]) == (False, [])
    assert [chunk["timings"]["predicted_n"] for chunk in rest[-2:]] == [3, 3]
    assert 0 < rest[0]["timings"]["predicted_n"] <= 3
    refused = http.post("/v1/completions", json={"prompt": ["a", "b"], **told}).json()["error"]
    assert refused["param"] == "return_progress"
    parts = events(http, "/v1/responses", {"input": "abc", "max_output_tokens": 3, **told})
    assert [part["type"] for part in parts if "prompt_progress" in part] == ["response.in_progress"] * 2
    assert parts[-1]["timings"]["predicted_n"] == 3


def test_pace_by_the_clock() -> None:
    now = 0.0
    pace = AnswerPace(reads=True, timed=True, now=lambda: now)
    now = 2.0
    progress = list(pace.progress(Prefill(id="", done=7, cached=4, total=10)))
    assert [(each.processed, each.time_ms) for each in progress] == [(4, 0.0), (7, 2000.0)]
    now = 3.0
    assert [each.processed for each in pace.progress(Prefill(id="", done=10, cached=4, total=10))] == [10]
    now = 5.0
    pace.take(Delta(id="", text="ab", tokens=[TokenInfo(id=1), TokenInfo(id=2), TokenInfo(id=3)]))
    timings: Any = pace.timings()
    assert (timings.cache_n, timings.prompt_n, timings.prompt_ms, timings.prompt_per_second) == (4, 6, 3000.0, 2.0)
    assert (timings.predicted_n, timings.predicted_ms, timings.predicted_per_token_ms) == (3, 2000.0, 1000.0)

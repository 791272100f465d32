"""Fields and addresses that vLLM's server has besides OpenAI's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.engine.doors.network.conftest import Running

MESSAGES = [{"role": "user", "content": "abc"}]
GIVEN: dict[str, Any] = {"max_tokens": 3, "return_token_ids": True, "return_tokens_as_token_ids": True}


def parts(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = answer.text.split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def test_the_ids_of_a_completion(http: httpx.Client) -> None:
    body = {**GIVEN, "prompt": [[7, 8, 9], [10, 11]], "logprobs": 1, "n": 2}
    answers = [[9, 8, 7], [9, 8, 7], [11, 10], [11, 10]]
    choices = http.post("/v1/completions", json=body).json()["choices"]
    assert [choice["token_ids"] for choice in choices] == answers
    assert [choice["prompt_token_ids"] for choice in choices] == [[7, 8, 9]] * 2 + [[10, 11]] * 2
    assert choices[0]["logprobs"]["tokens"] == ["token_id:9", "token_id:8", "token_id:7"]
    assert choices[0]["logprobs"]["top_logprobs"][0] == {"token_id:9": -0.5}
    told = [part["choices"][0] for part in parts(http.post("/v1/completions", json={**body, "stream": True}))]
    for number, ids in enumerate(answers):
        mine = [choice for choice in told if choice["index"] == number]
        assert [id for choice in mine for id in choice["token_ids"]] == ids
        assert [choice["prompt_token_ids"] for choice in mine if "prompt_token_ids" in choice] == [
            body["prompt"][number // 2]
        ]
    plain = http.post("/v1/completions", json={"prompt": [7, 8], "max_tokens": 1}).json()["choices"][0]
    assert [plain[name] for name in ("token_ids", "prompt_token_ids", "prompt_logprobs")] == [None] * 3


def test_the_ids_of_a_chat(http: httpx.Client, running: Running) -> None:
    running.engine.thinks = 2
    body = {**GIVEN, "messages": MESSAGES, "logprobs": True, "include_reasoning": False}
    whole = http.post("/v1/chat/completions", json=body).json()
    ids = list(running.last.prompt_ids)
    assert (whole["prompt_token_ids"], whole["choices"][0]["token_ids"]) == (ids, ids[:-4:-1])
    (token,) = whole["choices"][0]["logprobs"]["content"]
    assert (token["token"], token["top_logprobs"][0]["token"]) == (f"token_id:{ids[-3]}",) * 2
    told = parts(http.post("/v1/chat/completions", json={**body, "stream": True}))
    assert [part["prompt_token_ids"] for part in told if "prompt_token_ids" in part] == [ids]
    assert [id for part in told for id in part["choices"][0]["token_ids"]] == ids[:-4:-1], "thinking is not left out"


def test_prompts_are_cut(http: httpx.Client, running: Running) -> None:
    def read(path: str, **body: Any) -> list[int]:
        limit = {} if "input" in body else {"max_tokens": 1}
        assert http.post(path, json={**body, **limit}).status_code == 200
        return list(running.last.prompt_ids)

    ids = list(range(10, 20))
    assert read("/v1/completions", prompt=ids, truncate_prompt_tokens=3) == ids[-3:]
    assert read("/v1/completions", prompt=ids, truncate_prompt_tokens=3, truncation_side="right") == ids[:3]
    assert len(read("/v1/completions", prompt="word " * 90, truncate_prompt_tokens=-1)) == 63
    whole = read("/v1/chat/completions", messages=MESSAGES)
    assert read("/v1/chat/completions", messages=MESSAGES, truncate_prompt_tokens=4) == whole[-4:]
    assert read("/v1/embeddings", input=ids, truncate_prompt_tokens=4) == ids[:4]


def test_a_message_that_is_continued_is_echoed(http: httpx.Client) -> None:
    said = [*MESSAGES, {"role": "assistant", "content": "An apple"}]
    for echo in (False, True):
        body = {"messages": said, "echo": echo, "max_tokens": 2}
        text = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        assert text.startswith("An apple") is echo
        told = parts(http.post("/v1/chat/completions", json={**body, "stream": True}))
        assert "".join(part["choices"][0]["delta"].get("content") or "" for part in told) == text
    body = {"messages": MESSAGES, "echo": True, "max_tokens": 1}
    assert "abc" not in http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]


def test_a_conversation_that_was_tokenised_elsewhere(http: httpx.Client, running: Running) -> None:
    body = {"messages": MESSAGES, "kv_transfer_params": {"prompt_token_ids": [7, 8, 9]}, "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    assert (list(running.last.prompt_ids), running.last.continues) == ([7, 8, 9], False)
    refused = http.post("/v1/chat/completions", json={**body, "kv_transfer_params": {"do_remote_decode": True}})
    assert refused.json()["error"]["param"] == "kv_transfer_params.do_remote_decode"


def test_several_conversations_at_once(http: httpx.Client, running: Running) -> None:
    body = {"model": "tiny", "messages": [MESSAGES, [{"role": "user", "content": "xyz"}]], "max_tokens": 2, "n": 2}
    answer = http.post("/v1/chat/completions/batch", json={**body, "return_token_ids": True}).json()
    choices = answer["choices"]
    assert answer["prompt_token_ids"] is None
    assert [len(choice["token_ids"]) for choice in choices] == [2] * 4
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert all(choice["message"]["content"] for choice in choices)
    first, second = (running.engine.loaded.files.tokenizer.decode(each.prompt_ids) for each in running.engine.seen[-2:])
    assert "abc" in first
    assert "xyz" in second


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"messages": MESSAGES}, "messages", "not understood"),
        ({"messages": []}, "messages", "no conversation"),
        ({"messages": [MESSAGES, []]}, "messages", "no message"),
        ({"messages": [MESSAGES] * 300, "n": 2}, "messages", "600 answers"),
        ({"messages": [MESSAGES], "stream": True}, "stream", "several conversations"),
        ({"messages": [MESSAGES], "mesages": 1}, "mesages", "Did you mean"),
        ({}, "messages", "missing"),
    ],
)
def test_what_several_conversations_cannot_have(
    refusing: Running, fields: dict[str, Any], param: str, said: str
) -> None:
    with refusing.http() as http:
        answer = http.post("/v1/chat/completions/batch", json=fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert said in error["message"]


def test_the_one_address_of_sagemaker(http: httpx.Client) -> None:
    def kind(**body: Any) -> str:
        return str(http.post("/invocations", json={"model": "tiny", **body}).json()["object"])

    assert kind(messages=MESSAGES) == "chat.completion"
    assert kind(prompt="abc") == "text_completion"
    assert kind(input="abc") == "list"
    assert http.post("/invocations", content=b"{").json()["error"]["type"] == "invalid_request_error"


def test_a_prompt_with_and_without_what_the_tokenizer_adds(http: httpx.Client, running: Running) -> None:
    tokenizer = running.engine.loaded.files.tokenizer
    for add in (False, True):
        for body in ({"messages": MESSAGES}, {"prompt": "abc"}):
            given = {**body, "add_special_tokens": add, "max_tokens": 1}
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            assert http.post(path, json=given).status_code == 200
            text = tokenizer.decode(running.last.prompt_ids, skip_special=False)
            assert list(running.last.prompt_ids) == tokenizer.encode(text, special=False)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("TEXT", "TEXT named_metrics.kv_cache_usage_perc=0.1, named_metrics.num_requests_waiting=0.0"),
        ("json", 'JSON {"named_metrics": {"kv_cache_usage_perc": 0.1, "num_requests_waiting": 0.0}}'),
        ("BIN", None),
    ],
)
def test_the_load_for_a_balancer(http: httpx.Client, form: str, told: str | None) -> None:
    header = {"endpoint-load-metrics-format": form}
    answer = http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 1}, headers=header)
    assert answer.headers.get("endpoint-load-metrics") == told


def test_a_budget_for_a_model_that_does_not_think(http: httpx.Client) -> None:
    body = {"messages": MESSAGES, "thinking_token_budget": 5, "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=body).status_code == 200

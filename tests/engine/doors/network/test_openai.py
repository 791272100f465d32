"""The HTTP interface, by OpenAI's own client."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import httpx
import msgspec
import openai
import pytest

from engine.compute.sampling.params import resolve
from engine.doors.http.fields import MOST_MESSAGES, MOST_PROMPT_TOKENS
from engine.doors.http.openai.types import OpenAIChat
from engine.protocol import PROTOCOL, CacheStats, Cancel, GpuReading, Sampling, ThinkingModes
from engine.services import measured
from engine.text.template import ChatTemplate
from tests.engine.doors.network.conftest import Running
from tests.engine.doors.network.fake import FakeProbes

SWITCHED = "{{ enable_thinking }}|{{ reasoning_effort }}"
MESSAGES: Any = [{"role": "user", "content": "abc"}]


def test_models(api: openai.OpenAI) -> None:
    (model,) = api.models.list()
    assert (model.id, model.owned_by) == ("tiny", "kvasir")
    extra = model.model_extra or {}
    assert (extra["max_model_len"], extra["context_length"], extra["capabilities"]) == (64, 64, ["completion"])
    assert extra["meta"] == {"n_ctx": 64, "n_vocab": 402, "n_params": 1}


def test_chat(api: openai.OpenAI, running: Running) -> None:
    done = api.chat.completions.create(
        model="tiny", messages=MESSAGES, max_completion_tokens=6, n=2, seed=3, stop=["x"]
    )
    assert [choice.message.content for choice in done.choices] == [running.expected] * 2
    assert [choice.finish_reason for choice in done.choices] == ["stop", "stop"]
    assert done.usage is not None
    assert done.usage.completion_tokens == 12
    assert done.usage.total_tokens == 12 + len(running.last.prompt_ids)
    sampling = running.last.sampling
    assert (sampling.seed, sampling.stop, sampling.temperature, sampling.max_tokens) == (3, ["x"], None, 6)


def test_chat_in_parts_and_of_a_developer(api: openai.OpenAI, running: Running) -> None:
    parts: Any = [
        {"role": "developer", "content": "brief"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "b"},
            ],
        },
    ]
    api.chat.completions.create(model="", messages=parts)
    rendered = running.engine.loaded.files.tokenizer.decode(running.last.prompt_ids, skip_special=False)
    assert rendered.startswith("<|im_start|>system\nbrief<|im_end|>\n<|im_start|>user\nab<|im_end|>")


def test_chat_streams(api: openai.OpenAI, running: Running) -> None:
    stream = api.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=2,
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == running.expected
    assert chunks[0].choices[0].delta.to_dict() == {"role": "assistant", "content": None}
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == len(running.last.prompt_ids)
    logprobs = chunks[1].choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert logprobs.content[0].logprob == -0.5
    assert len(logprobs.content[0].top_logprobs) == 2


def test_completion(api: openai.OpenAI, running: Running) -> None:
    done = api.completions.create(model="tiny", prompt="abc def", max_tokens=3, logprobs=1)
    assert done.choices[0].text == running.expected
    assert running.last.continues
    assert done.choices[0].logprobs is not None
    assert done.choices[0].logprobs.token_logprobs == [-0.5] * 3
    stream = api.completions.create(model="tiny", prompt=running.last.prompt_ids, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in stream) == running.expected


def test_closing_a_stream_cancels(api: openai.OpenAI, running: Running) -> None:
    running.engine.gate.clear()
    stream = api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    stream.close()
    for _ in range(200):
        if running.engine.cancelled:
            break
        api.models.list()
    assert running.engine.cancelled
    running.engine.gate.set()


def test_leaving_a_whole_answer_cancels(running: Running, http: httpx.Client) -> None:
    running.engine.gate.clear()
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/chat/completions", json={"messages": MESSAGES}, timeout=0.5)
    for _ in range(200):
        if running.engine.cancelled:
            break
        http.get("/v1/models")
    running.engine.gate.set()
    assert len(running.engine.cancelled) == 1
    assert not any(isinstance(c, Cancel) and not c.id for c in running.engine.seen)


@pytest.mark.parametrize(
    ("body", "status", "param", "says"),
    [
        ({"model": "other", "messages": MESSAGES}, 404, "model", "not loaded, but tiny is"),
        ({"messages": "abc"}, 400, "messages", "was not understood"),
        ({}, 400, "messages", "missing required field"),
        ({"messages": []}, 400, "messages", "no message"),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role", "role 'king' is not supported"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "no content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400,
         "messages[0].content[0].image_url", "Pictures are not fetched"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:;base64,AA=="}]}]}, 400,
         "messages", "tiny reads text only."),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "1"}}]}]}, 400,
         "messages[0].content[0].type", "Content of type 'file' is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "txt": ""}]}]}, 400,
         "messages[0].content[0].text", "has no text"),
        ({"messages": [*MESSAGES, {"role": "assistant", "tool_calls": [{"id": "1"}]}]}, 400,
         "messages[1].tool_calls[0].function", "has no name of one"),
        ({"messages": [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f"}}]}]}, 400,
         "messages[0].tool_calls", "Only messages of the assistant"),
        ({"messages": [{"role": "user", "content": "z" * 300}]}, 400, "messages", "context length is 64 tokens"),
        ({"model": "m" * 10**6, "messages": MESSAGES}, 404, "model", "mmm…' is not loaded"),
        ({"messages": [{"role": "r" * 10**6, "content": ""}]}, 400, "messages[0].role", "rrr…' is not supported"),
        ({"messages": MESSAGES, "f" * 10**6: 1}, 400, "f" * 199 + "…", "fff…' is not known"),
        ({"messages": MESSAGES, "temperature": "hot"}, 400, "temperature", "was not understood"),
        ({"messages": MESSAGES, "temperatura": 1}, 400, "temperatura", "Did you mean 'temperature'?"),
        ({"messages": MESSAGES, "quite_other": {}}, 400, "quite_other", "not known. Leave it out."),
        ({"messages": MESSAGES, "n": 0}, 400, "n", "n is at least 1"),
        ({"messages": MESSAGES, "n": -1}, 400, "n", "n is at least 1"),
        ({"messages": MESSAGES, "max_completion_tokens": 0}, 400, "max_completion_tokens", "is at least 1"),
        ({"messages": MESSAGES, "max_tokens": -2}, 400, "max_tokens", "or -1 for no limit"),
        ({"messages": MESSAGES, "max_tokens": 16.5}, 400, "max_tokens", "was not understood"),
        ({"messages": MESSAGES, "options": {"temperatura": 1}}, 400, "temperatura", "Did you mean 'temperature'?"),
        ({"messages": MESSAGES, "repeat_last_n": 64, "repeat_penalty": 1.1}, 400, "repeat_last_n", "but for -1"),
        ({"messages": MESSAGES, "chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs.messages",
         "is not supported"),
        ({"messages": MESSAGES, "continue_final_message": True}, 400, "continue_final_message", "the last one is not"),
        ({"messages": [{"role": "assistant", "content": "a", "prefix": True}], "add_generation_prompt": True}, 400,
         "add_generation_prompt", "or a new turn begins"),
        ({"messages": MESSAGES, "logprobs": True, "top_logprobs": 99}, 400, "top_logprobs", "is 0 to 20"),
        ({"messages": MESSAGES, "top_logprobs": 2}, 400, "top_logprobs", "needs logprobs"),
        ({"messages": MESSAGES, "logit_bias": {"402": 1}}, 400, "logit_bias", "402 is not one of them"),
        ({"messages": MESSAGES, "logit_bias": {"-1": 1}}, 400, "logit_bias", "-1 is not one of them"),
        ({"messages": MESSAGES, "logit_bias": {"1" + "0" * 20: 1}}, 400, "logit_bias", "is not one of them"),
        ({"messages": MESSAGES, "stream_options": {"chunks": 2}}, 400, "stream_options.chunks", "unknown field"),
        ({"messages": MESSAGES, "logit_bias": {"bad": 1, "worse": 2}}, 400, "logit_bias", "'bad', 'worse'"),
        ({"messages": MESSAGES, "logprob_token_ids": [1]}, 400, "logprob_token_ids", "is not supported"),
        ({"messages": MESSAGES, "structured_outputs": {"grammar": ""}}, 400, "structured_outputs.grammar", "is empty"),
        ({"messages": MESSAGES, "truncate_prompt_tokens": 65}, 400, "truncate_prompt_tokens", "is 1 to 64, or -1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_openais_shape(
    refusing: Running, body: dict[str, Any], status: int, param: str, says: str, stream: bool
) -> None:
    with refusing.http() as http:
        answer = http.post("/v1/chat/completions", json={**body, "stream": stream})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"
    assert error["code"]
    assert refusing.engine.seen == []


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({}, "prompt", "missing required field"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": []}, "prompt", "empty"),
        ({"prompt": [""]}, "prompt", "empty"),
        ({"prompt": [[]]}, "prompt", "empty"),
        ({"prompt": [1, "b"]}, "prompt", "neither one of token ids nor a list of prompts"),
        ({"prompt": ["a"] * 257, "n": 2}, "prompt", "514 answers together"),
        ({"prompt": "abc", "stream_options": {}}, "stream_options", "needs stream"),
        ({"prompt": "abc", "best_of": 3}, "best_of", "where it equals n"),
        ({"prompt": "abc", "n": 2, "best_of": 1}, "best_of", "where it equals n"),
        (
            {"prompt": [5] * 64},
            "prompt",
            "maximum context length is 64 tokens, the answer included, and the prompt has 64",
        ),
        ({"prompt": "word " * 100_000}, "prompt", "the prompt has 500,000 bytes"),
    ],
)
def test_completions_are_refused_alike(refusing: Running, body: dict[str, Any], param: str, says: str) -> None:
    with refusing.http() as http:
        answer = http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert says in answer.json()["error"]["message"]
    assert refusing.engine.seen == []


def test_too_many_parts_are_refused_before_they_are_read(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgspec.json, "decode", decode_of_fields := Mock(wraps=msgspec.json.decode))
    said: Any = [{"role": "user", "content": 'a "role", "role"'}] * (MOST_MESSAGES + 1)
    answer = http.post("/v1/chat/completions", json={"messages": said})
    assert "20,001 messages" in answer.json()["error"]["message"]
    assert decode_of_fields.call_args.kwargs["type"] == dict[str, msgspec.Raw]
    answer = http.post("/v1/completions", json={"prompt": [5] * (MOST_PROMPT_TOKENS + 1)})
    assert "1,048,577 tokens" in answer.json()["error"]["message"]
    assert decode_of_fields.call_args.kwargs["type"] == dict[str, msgspec.Raw]
    assert "bytes" in http.post("/v1/completions", json={"prompt": "," * (MOST_PROMPT_TOKENS + 1)}).text
    assert "bytes" in http.post("/v1/completions", json={"prompt": ["5" + "," * (MOST_PROMPT_TOKENS + 1)]}).text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("prediction", {"type": "content", "content": "abc"}),
        ("web_search_options", {}),
        ("verbosity", "low"),
        ("moderation", {"model": "omni-moderation-latest"}),
    ],
)
def test_what_would_change_the_answer_is_refused(refusing: Running, field: str, value: Any) -> None:
    with refusing.openai() as api, pytest.raises(openai.BadRequestError, match="is not supported") as refused:
        api.chat.completions.create(model="tiny", messages=MESSAGES, extra_body={field: value})
    assert (refused.value.param, refused.value.code) == (field, "invalid_value")
    assert refusing.engine.seen == []


def test_what_asks_for_nothing_is_served(api: openai.OpenAI, running: Running) -> None:
    said = api.chat.completions.create(model="tiny", messages=MESSAGES).choices[0].message
    api.chat.completions.create(
        model="tiny",
        messages=[*MESSAGES, said, {"role": "user", "name": "Ada", "content": "abc"}],
        tools=[],
        tool_choice="none",
        parallel_tool_calls=False,
        response_format={"type": "text"},
        modalities=["text"],
        user="me",
        store=False,
        metadata={"a": "b"},
        service_tier="auto",
        safety_identifier="x",
        prompt_cache_key="y",
        stop=None,
        extra_body={
            "stream": None,
            "logprobs": None,
            "ignore_eos": None,
            "overflow": None,
            "audio": None,
            "top_k": -1,
            "guided_json": None,
        },
    )
    assert resolve(running.last.sampling, Sampling()).top_k == 0
    assert running.last.service == ""
    api.completions.create(model="tiny", prompt="abc", n=2, best_of=2, echo=False, suffix=None)
    api.completions.create(model="tiny", prompt=[[5, 6]], max_tokens=1)
    assert list(running.last.prompt_ids) == [5, 6]


def test_a_message_with_empty_fields_of_tools_is_served(api: openai.OpenAI) -> None:
    said: Any = {"role": "assistant", "content": "a", "refusal": None, "tool_calls": None, "function_call": None}
    api.chat.completions.create(
        model="tiny", messages=[*MESSAGES, {**said, "audio": None, "annotations": []}, *MESSAGES]
    )


def test_a_prompt_too_long_is_refused_before_the_stream(api: openai.OpenAI) -> None:
    long: Any = [{"role": "user", "content": "z" * 300}]
    with pytest.raises(openai.BadRequestError) as refused:
        api.chat.completions.create(model="tiny", messages=long, stream=True)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")


CUT = "Stopped, because other is being loaded."


@pytest.mark.parametrize(("reason", "status"), [("cancelled", 503), ("memory", 503), ("error", 500)])
def test_an_answer_that_was_cut_says_so(
    api: openai.OpenAI, http: httpx.Client, running: Running, reason: str, status: int
) -> None:
    running.engine.cut = reason, CUT
    with pytest.raises(openai.InternalServerError, match=CUT) as failed:
        api.chat.completions.create(model="tiny", messages=MESSAGES, n=2)
    assert (failed.value.status_code, failed.value.code, failed.value.type) == (status, reason, "server_error")
    with pytest.raises(openai.InternalServerError, match=CUT):
        api.completions.create(model="tiny", prompt="abc def")
    body = {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
    text = http.post("/v1/chat/completions", json=body).text
    *chunks, end = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert chunks
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert (end["error"]["message"], end["error"]["code"]) == (CUT, reason)
    stream = api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    read: list[Any] = []
    with pytest.raises(openai.APIError, match=CUT):
        read.extend(stream)


@pytest.mark.parametrize("reason", ["length", "context"])
def test_an_answer_at_its_limit_has_a_length(api: openai.OpenAI, running: Running, reason: str) -> None:
    running.engine.cut = reason, "The context is full."
    assert api.chat.completions.create(model="tiny", messages=MESSAGES).choices[0].finish_reason == "length"
    *_, end = api.completions.create(model="tiny", prompt="abc def", stream=True)
    assert end.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_the_server_did_not_outlive(home: Any, stream: bool) -> None:
    running = Running()
    running.engine.gate.clear()
    body = {"messages": MESSAGES, "stream": stream}
    with ThreadPoolExecutor(1) as pool, running.http() as http:
        asked = pool.submit(http.post, "/v1/chat/completions", json=body)
        while not running.server.hub.answering:
            time.sleep(0.01)
        running.server.stop()
        answer = asked.result(20)
    running.stop()
    assert answer.status_code == (200 if stream else 503)
    assert json.loads(answer.text.removeprefix("data: "))["error"]["code"] == "stopping"


def test_addresses_that_are_not_served(api: openai.OpenAI, http: httpx.Client, running: Running) -> None:
    assert api.models.retrieve("tiny").id == "tiny"
    assert http.get("/v1/models/").json()["data"][0]["id"] == "tiny"
    with pytest.raises(openai.NotFoundError, match="'other' is not loaded, but tiny is") as other:
        api.models.retrieve("other")
    assert (other.value.code, other.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match=r"no /v1/moderations here\. Served are /v1/models") as unknown:
        api.moderations.create(input="abc")
    assert unknown.value.code == "unknown_url"
    answer = httpx.get(f"{running.url}/v1/chat/completions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "not served by GET" in answer.json()["error"]["message"]


def test_a_failure_that_nobody_thought_of(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenAIChat, "sampling", lambda self: 1 / 0)
    answer = http.post("/v1/chat/completions", json={"messages": MESSAGES})
    assert answer.status_code == 500
    assert "division by zero" in answer.json()["error"]["message"]


def test_a_body_nested_without_an_end(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", content='{"messages": [], "new": ' + "[" * 200_000)
    assert answer.status_code == 400
    assert "was not understood" in answer.json()["error"]["message"]


def test_without_a_model(empty: Running) -> None:
    with empty.openai() as api:
        assert list(api.models.list()) == []
        with pytest.raises(openai.InternalServerError, match="No model is loaded"):
            api.chat.completions.create(model="", messages=MESSAGES)


def test_metrics(running: Running, api: openai.OpenAI, http: httpx.Client) -> None:
    api.completions.create(model="tiny", prompt="abc def")
    text = http.get("/metrics").text
    generated = len(running.last.prompt_ids)
    assert f"kvasir_generated_total {generated}\n" in text
    assert 'kvasir_memory_bytes{owner="weights",scope="process"} 1000\n' in text
    assert "# TYPE kvasir_steps_total counter\n" in text


def test_metrics_of_a_gpu(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its driver says comes from the probes, in a thread of their own, as memory does."""
    assert "kvasir_gpu" not in http.get("/metrics").text
    monkeypatch.setattr(measured, "MEASURE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(FakeProbes, "reading", GpuReading(watts=250.0, joules=12.5))
    lines = http.get("/metrics").text.splitlines()
    assert "kvasir_gpu_watts 250" in lines
    assert "kvasir_gpu_joules_total 12.5" in lines


def test_health(running: Running) -> None:
    health = httpx.get(f"{running.url}/health").json()
    assert (health["status"], health["model"], health["protocol"]) == ("ok", "tiny", PROTOCOL)


def test_thinking_is_told_apart(api: openai.OpenAI, running: Running) -> None:
    running.engine.thinks = 4
    done = api.chat.completions.create(model="tiny", messages=MESSAGES, logprobs=True)
    message: Any = done.choices[0].message
    whole = running.expected
    assert message.reasoning_content + message.content == whole
    assert 0 < len(message.reasoning_content) < len(whole)
    assert done.usage is not None
    assert done.usage.completion_tokens_details is not None
    assert done.usage.completion_tokens_details.reasoning_tokens == 4
    assert done.choices[0].logprobs is not None
    assert len(done.choices[0].logprobs.content or []) == done.usage.completion_tokens - 4
    stream = api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    deltas: Any = [chunk.choices[0].delta for chunk in stream]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == message.reasoning_content
    assert "".join(delta.content or "" for delta in deltas) == message.content
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    assert not hasattr(deltas[-1], "reasoning_content")


def test_thinking_is_switched_by_the_template(api: openai.OpenAI, running: Running) -> None:
    loaded = running.engine.loaded
    loaded.files.template = ChatTemplate(SWITCHED)
    modes = ThinkingModes(kind="switchable", efforts=["low", "medium", "high"])
    loaded.card = msgspec.structs.replace(loaded.card, thinking=modes)

    def prompt(**extra: Any) -> str:
        api.chat.completions.create(model="tiny", messages=MESSAGES, **extra)
        return str(loaded.files.tokenizer.decode(running.last.prompt_ids))

    assert prompt() == "|"
    assert prompt(extra_body={"chat_template_kwargs": {"enable_thinking": False}}) == "False|"
    assert prompt(extra_body={"chat_template_kwargs": {"thinking": True}}) == "True|"
    assert prompt(extra_body={"chat_template_kwargs": None, "reasoning_effort": None}) == "|"
    assert prompt(reasoning_effort="low") == "|low"
    assert prompt(reasoning_effort="none") == "False|"
    with pytest.raises(openai.BadRequestError, match="knows no reasoning effort 'minimal'"):
        prompt(reasoning_effort="minimal")
    for off in ({"think": False}, {"enable_thinking": False}, {"thinking": {"type": "disabled"}},
                {"reasoning": {"enabled": False}}, {"reasoning": {"effort": "none"}}):  # fmt: skip
        assert prompt(extra_body=off) == "False|"
    for low in ({"think": "low"}, {"reasoning": {"effort": "low"}}):
        assert prompt(extra_body=low) == "|low"
    loaded.files.template = ChatTemplate("{{ date }}{{ thinking }}")
    assert prompt(extra_body={"chat_template_kwargs": {"date": "today", "enable_thinking": True}}) == "todayTrue"


def test_past_thinking_reaches_the_template(api: openai.OpenAI, running: Running) -> None:
    loaded = running.engine.loaded
    loaded.files.template = ChatTemplate("{% for m in messages %}{{ m.reasoning_content }};{% endfor %}")
    said: Any = [*MESSAGES, {"role": "assistant", "content": "a", "reasoning_content": "hm"}, *MESSAGES]
    api.chat.completions.create(model="tiny", messages=said)
    assert loaded.files.tokenizer.decode(running.last.prompt_ids) == ";hm;;"
    said[1]["reasoning"] = said[1].pop("reasoning_content")
    api.chat.completions.create(model="tiny", messages=said)
    assert loaded.files.tokenizer.decode(running.last.prompt_ids) == ";hm;;"


def test_a_conversation_is_recognised_by_what_was_said(api: openai.OpenAI, running: Running) -> None:
    """No name is sent, yet the next prompt begins with the drawn ids, which no tokenizer would make of their text."""
    running.engine.context = 512
    running.engine.loaded = running.engine._model("/models/tiny")
    tokenizer = running.engine.loaded.files.tokenizer
    running.engine.template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    running.engine.loaded = running.engine._model("/models/tiny")
    messages: Any = [{"role": "user", "content": "keys ehT"}]
    before: list[int] = []
    for question in (" ehT", " so ehT", " ehT"):
        done = api.chat.completions.create(model="tiny", messages=messages, max_completion_tokens=3, n=2)
        ids = list(running.last.prompt_ids)
        assert ids[: len(before)] == before
        before = [*ids, *ids[::-1][:3]]
        assert tokenizer.encode(tokenizer.decode(before), special=False) != before
        messages.append({"role": "assistant", "content": done.choices[1].message.content})
        messages.append({"role": "user", "content": question})


def test_a_completion_is_recognised_by_its_beginning(api: openai.OpenAI, running: Running) -> None:
    text = "The cache keeps keys"
    done = api.completions.create(model="tiny", prompt=text, max_tokens=50)
    before = list(running.last.prompt_ids)
    api.completions.create(model="tiny", prompt=text + done.choices[0].text + " and values", max_tokens=1)
    assert list(running.last.prompt_ids)[: 2 * len(before)] == [*before, *reversed(before)]


def test_overflow_is_a_field_and_the_cut_a_header(api: openai.OpenAI, running: Running) -> None:
    turns: Any = [
        {"role": role, "content": f"{role} {number}"} for number in range(8) for role in ("user", "assistant")
    ]
    messages = [*turns, {"role": "user", "content": "now"}]
    running.engine.context = 192
    running.engine.loaded = running.engine._model("/models/tiny")
    create = api.chat.completions.with_raw_response.create
    with pytest.raises(openai.BadRequestError):
        create(model="tiny", messages=messages)
    made = create(model="tiny", messages=messages, max_tokens=2, extra_body={"overflow": "drop_middle"})
    assert made.headers["x-kvasir-context-cut"].startswith("drop_middle; first=2; last=")
    made = create(model="tiny", messages=messages, max_tokens=2, extra_body={"overflow": "window"})
    assert made.headers["x-kvasir-context-cut"].startswith("window; sinks=4; window=144; tokens=")
    assert running.last.window == 144
    stream = create(model="tiny", messages=messages, max_tokens=2, stream=True, extra_body={"overflow": "drop_middle"})
    assert "drop_middle" in stream.headers["x-kvasir-context-cut"]
    short = create(model="tiny", messages=messages[-1:], max_tokens=2, extra_body={"overflow": "drop_middle"})
    assert "x-kvasir-context-cut" not in short.headers
    with pytest.raises(openai.BadRequestError, match="overflow"):
        create(model="tiny", messages=messages, extra_body={"overflow": "sideways"})
    long: Any = [{"role": "user", "content": "long " * 300}]
    with pytest.raises(openai.BadRequestError, match="Shorten the messages"):
        create(model="tiny", messages=long, extra_body={"overflow": "drop_middle"})
    ids = running.engine.loaded.files.tokenizer.encode("a " * 150)
    api.completions.create(model="tiny", prompt=ids, max_tokens=1, extra_body={"overflow": "window"})
    assert running.last.window == 144


def test_tokens_found_in_the_cache_are_counted(api: openai.OpenAI, running: Running) -> None:
    running.engine.cached = 16
    done = api.chat.completions.create(model="tiny", messages=MESSAGES)
    assert done.usage is not None
    assert done.usage.prompt_tokens_details is not None
    assert done.usage.prompt_tokens_details.cached_tokens == 16


def test_the_cache_counters_are_scraped(running: Running, http: httpx.Client) -> None:
    running.engine.stats = CacheStats(
        looked_up=100, hit=60, evicted_pages=3, swapped_out=7, swapped_in=5, host_bytes=4096, disk_bytes=11
    )
    text = http.get("/metrics").text
    wanted = {"looked_up": 100, "hit": 60, "evicted_pages": 3, "swapped_out": 7, "swapped_in": 5}
    for name, value in wanted.items():
        assert f"# TYPE kvasir_cache_{name}_total counter\nkvasir_cache_{name}_total {value}\n" in text
    assert 'kvasir_cache_swapped_bytes{place="host"} 4096\n' in text
    assert 'kvasir_cache_swapped_bytes{place="disk"} 11\n' in text


@pytest.mark.parametrize(
    ("tier", "service"),
    [
        ("priority", "interactive"),
        ("flex", "batch"),
        ("default", "standard"),
        ("batch", "batch"),
        ("scale", ""),
    ],
)
def test_a_tier_chooses_the_service_class(running: Running, http: httpx.Client, tier: str, service: str) -> None:
    http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "abc"}], "service_tier": tier})
    assert running.last.service == service
    told = http.post("/v1/responses", json={"input": "abc", "service_tier": tier}).json()["service_tier"]
    assert running.last.service == service
    assert told == {"interactive": "priority", "batch": "flex"}.get(service, "default")

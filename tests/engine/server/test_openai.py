"""The HTTP interface, by OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import openai
import pytest

from engine.core.commands import AddRequest, CancelRequest
from engine.protocol import ThinkingModes
from engine.text.template import ChatTemplate
from tests.engine.server.conftest import TOKEN, Running

SWITCHED = "{{ enable_thinking }}|{{ reasoning_effort }}"
MESSAGES: Any = [{"role": "user", "content": "abc"}]


@pytest.fixture
def api(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key=TOKEN, max_retries=0, timeout=20) as client:
        yield client


def last(running: Running) -> AddRequest:
    return [c for c in running.engine.seen if isinstance(c, AddRequest)][-1]


def expected(running: Running) -> str:
    command = last(running)
    ids = list(reversed(command.prompt_ids))[: command.sampling.max_tokens or 1000]
    return running.engine.loaded.tokenizer.decode(ids)


def test_models(api: openai.OpenAI) -> None:
    assert [model.id for model in api.models.list()] == ["tiny"]


def test_chat(api: openai.OpenAI, running: Running) -> None:
    done = api.chat.completions.create(
        model="tiny", messages=MESSAGES, max_completion_tokens=6, n=2, seed=3, stop=["x"]
    )
    assert [choice.message.content for choice in done.choices] == [expected(running)] * 2
    assert [choice.finish_reason for choice in done.choices] == ["stop", "stop"]
    assert done.usage is not None
    assert done.usage.completion_tokens == 12
    assert done.usage.total_tokens == 12 + len(last(running).prompt_ids)
    sampling = last(running).sampling
    assert (sampling.seed, sampling.stop, sampling.temperature, sampling.max_tokens) == (3, ["x"], None, 6)


def test_chat_in_parts_and_of_a_developer(api: openai.OpenAI, running: Running) -> None:
    parts: Any = [
        {"role": "developer", "content": "brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    api.chat.completions.create(model="", messages=parts)
    rendered = running.engine.loaded.tokenizer.decode(last(running).prompt_ids, skip_special=False)
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
    assert text == expected(running)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == len(last(running).prompt_ids)
    logprobs = chunks[0].choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert logprobs.content[0].logprob == -0.5
    assert len(logprobs.content[0].top_logprobs) == 2


def test_completion(api: openai.OpenAI, running: Running) -> None:
    done = api.completions.create(model="tiny", prompt="abc def", max_tokens=3, logprobs=1)
    assert done.choices[0].text == expected(running)
    assert last(running).continues
    assert done.choices[0].logprobs is not None
    assert done.choices[0].logprobs.token_logprobs == [-0.5] * 3
    stream = api.completions.create(model="tiny", prompt=last(running).prompt_ids, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in stream) == expected(running)


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


def test_leaving_a_whole_answer_cancels(running: Running) -> None:
    running.engine.gate.clear()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=running.url, headers=headers) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/chat/completions", json={"messages": MESSAGES}, timeout=0.5)
        for _ in range(200):
            if running.engine.cancelled:
                break
            http.get("/v1/models")
    running.engine.gate.set()
    assert len(running.engine.cancelled) == 1
    assert not any(isinstance(c, CancelRequest) and not c.id for c in running.engine.seen)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"model": "other", "messages": MESSAGES}, 404, "not loaded, but tiny is"),
        ({"messages": "abc"}, 400, "was not understood"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "role 'tool' is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "image_url"),
        ({"messages": [{"role": "user", "content": "z" * 300}]}, 400, "too long"),
        ({"messages": MESSAGES, "temperature": "hot"}, 400, "was not understood"),
    ],
)
def test_errors_have_openais_shape(running: Running, body: dict[str, Any], status: int, says: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(f"{running.url}/v1/chat/completions", json=body, headers=headers, timeout=20)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]
    if status == 400 and "z" * 300 in json.dumps(body):
        streamed = httpx.post(f"{running.url}/v1/chat/completions", json={**body, "stream": True}, headers=headers)
        assert "prompt_too_long" in streamed.text


def test_a_body_nested_without_an_end(running: Running) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    body = '{"messages": [], "new": ' + "[" * 200_000
    answer = httpx.post(f"{running.url}/v1/chat/completions", content=body, headers=headers, timeout=20)
    assert answer.status_code == 400
    assert "was not understood" in answer.json()["error"]["message"]


def test_without_a_model(empty: Running) -> None:
    with openai.OpenAI(base_url=f"{empty.url}/v1", api_key=TOKEN, max_retries=0) as api:
        assert list(api.models.list()) == []
        with pytest.raises(openai.InternalServerError, match="No model is loaded"):
            api.chat.completions.create(model="", messages=MESSAGES)


def test_metrics(running: Running, api: openai.OpenAI) -> None:
    api.completions.create(model="tiny", prompt="abc def")
    text = httpx.get(f"{running.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
    generated = len(last(running).prompt_ids)
    assert f"kvasir_generated_total {generated}\n" in text
    assert 'kvasir_memory_bytes{owner="weights",scope="process"} 1000\n' in text
    assert "# TYPE kvasir_steps_total counter\n" in text


def test_health(running: Running) -> None:
    health = httpx.get(f"{running.url}/health").json()
    assert (health["status"], health["model"], health["protocol"]) == ("ok", "tiny", 1)


def test_thinking_is_told_apart(api: openai.OpenAI, running: Running) -> None:
    running.engine.thinks = 4
    done = api.chat.completions.create(model="tiny", messages=MESSAGES, logprobs=True)
    message: Any = done.choices[0].message
    whole = expected(running)
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
    loaded.chat_template = ChatTemplate(SWITCHED)
    modes = ThinkingModes(kind="switchable", efforts=["low", "medium", "high"])
    loaded.card = msgspec.structs.replace(loaded.card, thinking=modes)

    def prompt(**extra: Any) -> str:
        api.chat.completions.create(model="tiny", messages=MESSAGES, **extra)
        return str(loaded.tokenizer.decode(last(running).prompt_ids))

    assert prompt() == "|"
    assert prompt(extra_body={"chat_template_kwargs": {"enable_thinking": False}}) == "False|"
    assert prompt(extra_body={"chat_template_kwargs": {"thinking": True}}) == "True|"
    assert prompt(extra_body={"chat_template_kwargs": None, "reasoning_effort": None}) == "|"
    assert prompt(reasoning_effort="low") == "|low"
    assert prompt(reasoning_effort="none") == "False|"
    with pytest.raises(openai.BadRequestError, match="knows no reasoning effort 'minimal'"):
        prompt(reasoning_effort="minimal")
    with pytest.raises(openai.BadRequestError, match="unknown field `documents`"):
        prompt(extra_body={"chat_template_kwargs": {"documents": []}})


def test_past_thinking_reaches_the_template(api: openai.OpenAI, running: Running) -> None:
    loaded = running.engine.loaded
    loaded.chat_template = ChatTemplate("{% for m in messages %}{{ m.reasoning_content }};{% endfor %}")
    said: Any = [*MESSAGES, {"role": "assistant", "content": "a", "reasoning_content": "hm"}, *MESSAGES]
    api.chat.completions.create(model="tiny", messages=said)
    assert loaded.tokenizer.decode(last(running).prompt_ids) == ";hm;;"

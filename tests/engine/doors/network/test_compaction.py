"""Conversations that are compacted by OpenAI's Responses, by OpenAI's own client."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from engine.doors.http.responses.compaction import ASKS, NOT_WHOLE
from tests.engine.doors.network.conftest import Running
from tests.kit.tool_scripts import QWEN

SUMMARY = "We launch on Tuesday."
CALL: Any = {"type": "function_call", "call_id": "c", "name": "tell", "arguments": "{}"}
TALK: Any = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "When do we launch?"},
    CALL,
    {"type": "function_call_output", "call_id": "c", "output": "on Tuesday"},
    {"role": "assistant", "content": "On Tuesday, then."},
]
"""A conversation with messages of all roles, and a call."""


@pytest.fixture
def summing(running: Running) -> Running:
    running.engine.speak(QWEN, SUMMARY)
    return running


def test_a_conversation_goes_on_from_its_summary(api: openai.OpenAI, summing: Running) -> None:
    made = api.responses.compact(model="tiny", input=TALK, instructions="You launch.", prompt_cache_key="a")
    assert "system\nYou launch.\n\nBe kind.<" in summing.prompt
    assert "on Tuesday" in summing.prompt
    assert summing.prompt.endswith(f"<|im_start|>user\n{ASKS}<|im_end|>\n<|im_start|>assistant\n")
    assert [(item.type, getattr(item, "role", "")) for item in made.output] == [
        ("message", "developer"), ("message", "user"), ("compaction", ""),
    ]  # fmt: skip
    assert made.object == "response.compaction"
    [command] = summing.asked
    assert command.sampling.max_tokens == summing.engine.context // 4
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens > 20
    kept: Any = [item.to_dict(warnings=False) for item in made.output]
    api.responses.create(model="tiny", input=[*kept, {"role": "user", "content": "And then?"}])
    first, summary, last = summing.prompt.split("<|im_start|>user\n")[1:]
    assert (first, last.partition("<")[0]) == ("When do we launch?<|im_end|>\n", "And then?")
    assert SUMMARY in summary
    assert "On Tuesday, then" not in summing.prompt
    with pytest.raises(openai.NotFoundError):
        api.responses.retrieve(made.id)


def test_what_is_stored_is_compacted_by_its_name(api: openai.OpenAI, summing: Running) -> None:
    stored = api.responses.create(model="tiny", input="abc")
    made = api.responses.compact(model="tiny", previous_response_id=stored.id)
    assert [item.type for item in made.output] == ["message", "compaction"]
    assert f"assistant\n{SUMMARY}" in summing.prompt


def test_a_summary_that_is_not_whole_says_so(summing: Running) -> None:
    summing.engine.says_length = True
    body = {"model": "tiny", "input": TALK, "max_output_tokens": 3}
    with summing.http() as http:
        made = http.post("/v1/responses/compact", json=body).raise_for_status().json()
        assert made["notices"] == [NOT_WHOLE]
        summing.engine.script = " "
        empty = http.post("/v1/responses/compact", json=body)
    assert (empty.status_code, "wrote no summary" in empty.text) == (500, True)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/compact", {"input": "abc"}, "model"),
        ("/compact", {"model": "tiny", "input": "abc", "stream": True}, "stream"),
        ("/compact", {"model": "tiny", "input": "abc", "background": True}, "background"),
        ("/compact", {"model": "tiny", "input": "abc", "previous_response_id": "resp_1"}, "previous_response_id"),
        ("", {"input": [{"type": "compaction", "encrypted_content": "gAAAA"}]}, "input[0].encrypted_content"),
        ("", {"input": [{"type": "compaction", "encrypted_content": "kvasir-a"}]}, "input[0].encrypted_content"),
        ("", {"input": [{"type": "compaction"}]}, "input[0].encrypted_content"),
    ],
)
def test_what_is_refused(path: str, body: dict[str, Any], param: str, refusing: Running) -> None:
    with refusing.http() as http:
        answer: httpx.Response = http.post(f"/v1/responses{path}", json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param

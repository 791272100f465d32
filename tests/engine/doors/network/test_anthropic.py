"""Anthropic's Messages, by Anthropic's own client."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import pytest

from engine import protocol as p
from engine.doors.http.anthropic.types import BILLING
from engine.doors.http.anthropic.writer import Ending
from engine.protocol import Thinking
from tests.engine.doors.network.conftest import Running

MESSAGES: Any = [{"role": "user", "content": "abc"}]
USAGE = p.Usage(prompt_tokens=1, cached_tokens=0, generated_tokens=1, seed=0)
TIMINGS = p.Timings(queued_ms=0, ttft_ms=0, total_ms=0, tokens_per_second=0, tokens_per_step=0, steps=0)
RENDERED = "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n"


def test_a_message_whole_and_as_events(claude: anthropic.Anthropic, running: Running) -> None:
    given: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 5, "system": "be kind"}
    fields = {"temperature": 0.5, "top_k": 7}
    message = claude.messages.create(**given, extra_body=fields, stop_sequences=["xyz"], metadata={"user_id": "me"})
    sampling = running.last.sampling
    assert (sampling.temperature, sampling.top_k, sampling.max_tokens, sampling.stop) == (0.5, 7, 5, ["xyz"])
    assert running.prompt == RENDERED
    assert [block.type for block in message.content] == ["text"]
    assert message.content[0].text == running.expected  # type: ignore[union-attr]
    assert (message.role, message.model, message.type) == ("assistant", "tiny", "message")
    usage = message.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == len(running.last.prompt_ids)
    assert usage.output_tokens == 5
    with claude.messages.stream(**given) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert final.content[0].text == message.content[0].text  # type: ignore[union-attr]
    assert final.usage.output_tokens == 5
    named = [kind for kind in kinds if kind.startswith(("message", "content_block"))]
    assert named[:2] == ["message_start", "content_block_start"]
    assert named[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_blocks_of_a_conversation(claude: anthropic.Anthropic, running: Running) -> None:
    cached: Any = {"cache_control": {"type": "ephemeral"}}
    claude.messages.create(
        model="tiny",
        max_tokens=2,
        system=[{"type": "text", "text": f"{BILLING}: cch=1;"}, {"type": "text", "text": "be kind", **cached}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "ab", **cached}, {"type": "text", "text": "c"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "de"}]},
        ],
    )
    assert running.prompt == RENDERED + "de"
    assert running.last.prefilled


def test_tokens_are_counted_as_they_are_read(claude: anthropic.Anthropic, running: Running) -> None:
    counted = claude.messages.count_tokens(model="tiny", messages=MESSAGES, system="be kind")
    claude.messages.create(model="tiny", messages=MESSAGES, system="be kind", max_tokens=1)
    assert counted.input_tokens == len(running.last.prompt_ids)


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [
        ({"type": "enabled", "budget_tokens": 2000}, Thinking(on=True)),
        ({"type": "adaptive"}, Thinking(on=True)),
        ({"type": "disabled"}, Thinking(on=False)),
        (None, Thinking(on=False)),
    ],
)
def test_thinking(claude: anthropic.Anthropic, running: Running, thinking: Any, wanted: Thinking) -> None:
    more = {} if thinking is None else {"thinking": thinking}
    claude.messages.create(model="tiny", messages=MESSAGES, max_tokens=3, **more)
    assert running.last.thinks is bool(wanted.on)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type: Tools of the type"),
        ({"messages": []}, "messages: There is no message to answer."),
        ({"container": "c"}, "container: The field 'container' is not supported."),
        ({"max_tokens": 0}, "max_tokens: max_tokens is at least 1"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages.0.content.0.type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}]},
            "messages.0.content.0.source: Pictures are not fetched",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": base64.b64encode(b"x").decode(),
                                },
                            }
                        ],
                    }
                ]
            },
            "reads text only",
        ),
        ({"messages": [{"role": "user", "content": "a" * 4000}]}, "This model's maximum context length is"),
    ],
    ids=["tools", "no message", "container", "no tokens", "document", "address", "picture", "too long"],
)
def test_what_is_refused(claude: anthropic.Anthropic, given: Any, told: str) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(**{"model": "tiny", "messages": MESSAGES, "max_tokens": 3} | given)
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert told in body["error"]["message"]


def test_why_an_answer_ended(running: Running) -> None:
    words = running.engine.loaded.files.tokenizer
    ending = Ending(["day", "b"], [7], words)
    stopped, text = (p.Finished("", "stop", USAGE, TIMINGS), words.encode("a nice day", special=False))
    assert ending.reason(stopped, [*text, 7]) == ("end_turn", None)
    assert ending.reason(stopped, text) == ("stop_sequence", "day")
    assert ending.reason(p.Finished("", "length", USAGE, TIMINGS), text) == ("max_tokens", None)
    assert Ending([], [7], words).reason(stopped, text) == ("end_turn", None)


def test_strangers_and_unknown_models(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.AuthenticationError):
        claude.with_options(api_key="wrong").messages.create(model="tiny", messages=MESSAGES, max_tokens=1)
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="claude", messages=MESSAGES, max_tokens=1)

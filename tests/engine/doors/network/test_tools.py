"""Tools through the dialects of HTTP, each by its own client: asked for, called, streamed, and sent back."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import ollama
import openai
import pytest

from engine.doors.http.service import NOTICE_HEADER
from engine.text.formats.calls import CUT_SHORT
from engine.text.formats.generic import GENERIC
from tests.engine.doors.network.conftest import Running
from tests.kit.tool_scripts import QWEN, SCHEMA

TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Basel"}}\n</tool_call>'
SCRIPT = f'Let me see.\n{CALL}\n<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>'
ASKED: Any = [{"role": "user", "content": "abc"}]


@pytest.fixture
def tooled(running: Running) -> Running:
    running.engine.speak(QWEN, SCRIPT)
    return running


def test_calls_whole_and_streamed_are_the_same(api: openai.OpenAI, tooled: Running) -> None:
    given: Any = {"model": "tiny", "messages": ASKED, "tools": TOOLS}
    whole = api.chat.completions.create(**given)
    choice = whole.choices[0]
    assert '"name": "weather", "description": "Tells it."' in tooled.prompt
    assert (choice.message.content, choice.finish_reason) == ("Let me see.", "tool_calls")
    calls = [(each.function.name, json.loads(each.function.arguments)) for each in choice.message.tool_calls or ()]  # type: ignore[union-attr]
    assert calls == [("weather", {"city": "Basel"}), ("now", {})]
    with api.chat.completions.stream(**given) as stream:
        final = stream.get_final_completion().choices[0]
    assert (final.message.content, final.finish_reason) == ("Let me see.", "tool_calls")
    streamed = [(each.function.name, json.loads(each.function.arguments)) for each in final.message.tool_calls or ()]
    assert streamed == calls
    assert len({each.id for each in (*final.message.tool_calls, *choice.message.tool_calls)}) == 4  # type: ignore[misc]


@pytest.mark.usefixtures("tooled")
def test_arguments_come_in_parts_behind_the_name(api: openai.OpenAI) -> None:
    parts = [
        call
        for chunk in api.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS, stream=True)
        for call in (chunk.choices[0].delta.tool_calls or () if chunk.choices else ())
    ]
    first, *more = [part for part in parts if part.index == 0]
    assert first.function is not None
    assert (first.function.name, first.type, bool(first.id)) == ("weather", "function", True)
    assert all(part.id is None for part in more)
    assert "".join(part.function.arguments or "" for part in (first, *more) if part.function) == '{"city": "Basel"}'


def test_a_conversation_with_calls_and_results_goes_on(api: openai.OpenAI, tooled: Running) -> None:
    first = api.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS).choices[0].message
    assert first.tool_calls is not None
    before = [*tooled.last.prompt_ids]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in first.tool_calls]
    tooled.engine.script = "It shines."
    told: Any = [*ASKED, first.model_dump(exclude_none=True), *results]
    done = api.chat.completions.create(model="tiny", messages=told, tools=TOOLS)
    assert done.choices[0].message.content == "It shines."
    assert done.choices[0].finish_reason == "stop"
    assert "sun of weather<|im_end|>" in tooled.prompt
    assert "sun of now<|im_end|>" in tooled.prompt
    assert CALL in tooled.prompt
    # What the model wrote itself stands there, token by token.
    assert tooled.last.prompt_ids[: len(before)] == before


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", ()),
        ({"type": "function", "function": {"name": "now"}}, ("now",)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOLS[1]]}},
            ("now",),
        ),
    ],
)
def test_a_call_that_is_required_is_held_to_by_a_grammar(
    choice: Any, names: tuple[str, ...], api: openai.OpenAI, tooled: Running
) -> None:
    api.chat.completions.create(
        model="tiny", messages=ASKED, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False
    )
    command = tooled.last
    assert command.tools is not None
    assert (command.tools.choice, tuple(command.tools.names), command.tools.parallel) == ("required", names, False)
    assert command.grammar is not None
    constraint = command.grammar.constraint(0, None)
    tokenizer = tooled.engine.loaded.files.tokenizer
    allowed = constraint.allowed(tokenizer.encode('<tool_call>\n{"name": "', special=False))
    assert allowed is not None
    begins = {tokenizer.piece(id)[:1] for id in range(402) if allowed.words[id >> 5] >> (id & 31) & 1} - {""}
    assert begins == ({"n"} if names else {"n", "w"})


def test_no_tool_is_called_where_none_may_be(api: openai.OpenAI, tooled: Running) -> None:
    done = api.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS, tool_choice="none")
    assert done.choices[0].message.tool_calls is None
    assert tooled.last.tools is None
    assert "weather" not in tooled.prompt


@pytest.mark.usefixtures("tooled")
def test_one_call_where_several_are_unwanted(api: openai.OpenAI) -> None:
    done = api.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS, parallel_tool_calls=False)
    assert [call.function.name for call in done.choices[0].message.tool_calls or ()] == ["weather"]  # type: ignore[union-attr]


def test_a_malformed_call_is_text_with_a_notice(api: openai.OpenAI, tooled: Running) -> None:
    tooled.engine.script = "So: <tool_call>\nweather in Basel\n</tool_call>"
    done = api.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS)
    assert done.choices[0].message.content == "So:<tool_call>\nweather in Basel\n</tool_call>"
    assert (done.choices[0].finish_reason, (done.model_extra or {})["notices"]) == ("stop", [CUT_SHORT])


def test_a_model_without_tools_is_told_of_them_and_says_so(running: Running) -> None:
    running.engine.speak("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}", CALL)
    with running.http() as http:
        told = {"role": "tool", "tool_call_id": "c", "content": "sun"}
        called = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "now", "arguments": "{}"}}]}
        body = {"messages": [*ASKED, called, told], "tools": TOOLS}
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.headers[NOTICE_HEADER] == GENERIC
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    text = running.prompt
    assert '"description": "Tells it."' in text
    assert '[assistant] <tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>' in text
    assert "[user] <tool_response>\nsun\n</tool_response>" in text


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "no name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "cannot name"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type", "'retrieval' are not supported"),
        ({"tools": [TOOLS[1], TOOLS[1]]}, "tools", "Two tools are called 'now'"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
            "not a JSON schema of an object",
        ),
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice", "auto, none, required"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", "'x' is not"),
        ({"tool_choice": "required"}, "tool_choice", "there are none"),
        (
            {"tools": [{"function": {"name": "a", "parameters": {"properties": {"b": {"type": "x"}}}}}],
             "tool_choice": "required"},
            "tools",
            "'a': The JSON schema cannot be served at #/properties/b",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_with_its_place(body: Any, param: str, words: str, tooled: Running) -> None:
    with tooled.http() as http:
        answer = http.post("/v1/chat/completions", json={"messages": ASKED, **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["param"] == param


def test_a_thousand_tools(api: openai.OpenAI, tooled: Running) -> None:
    tooled.engine.speak(QWEN, CALL, context=1 << 20)
    many: Any = [
        {"type": "function", "function": {"name": f"tool_{number}", "parameters": SCHEMA}} for number in range(999)
    ]
    done = api.chat.completions.create(model="tiny", messages=ASKED, tools=[*many, TOOLS[0]])
    assert [call.function.name for call in done.choices[0].message.tool_calls or ()] == ["weather"]  # type: ignore[union-attr]


CLAUDE: Any = [
    {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA},
    {"name": "now", "input_schema": {"type": "object"}},
    {"type": "web_search_20250305", "name": "web_search"},
]


def test_anthropics_blocks_of_calls(claude: anthropic.Anthropic, tooled: Running) -> None:
    given: Any = {"model": "tiny", "max_tokens": 900, "messages": ASKED, "tools": CLAUDE}
    message = claude.messages.create(**given)
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    assert [(block.name, block.input) for block in message.content[1:]] == [  # type: ignore[union-attr]
        ("weather", {"city": "Basel"}),
        ("now", {}),
    ]
    with claude.messages.stream(**given) as stream:
        final = stream.get_final_message()
    assert [(block.type, getattr(block, "input", None)) for block in final.content] == [
        (block.type, getattr(block, "input", None)) for block in message.content
    ]
    results: Any = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "sun"}]}  # type: ignore[union-attr]
        for block in message.content[1:]
    ]
    tooled.engine.script = "It shines."
    told: Any = [
        *ASKED,
        {"role": "assistant", "content": [block.model_dump() for block in message.content]},
        {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]},
    ]
    done = claude.messages.create(**{**given, "messages": told})
    assert (done.content[0].text, done.stop_reason) == ("It shines.", "end_turn")  # type: ignore[union-attr]
    assert "sun of weather<|im_end|>\n<|im_start|>tool\nsun of now<|im_end|>\n<|im_start|>user\nAnd?" in tooled.prompt
    counted = claude.messages.count_tokens(model="tiny", messages=told, tools=CLAUDE)
    assert counted.input_tokens == len(tooled.last.prompt_ids)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "any"}, ("required", [], True)),
        ({"type": "tool", "name": "now", "disable_parallel_tool_use": True}, ("required", ["now"], False)),
    ],
)
def test_anthropics_choices(choice: Any, expected: Any, claude: anthropic.Anthropic, tooled: Running) -> None:
    claude.messages.create(model="tiny", max_tokens=900, messages=ASKED, tools=CLAUDE, tool_choice=choice)
    tools = tooled.last.tools
    assert tools is not None
    assert (tools.choice, tools.names, tools.parallel) == expected
    claude.messages.create(model="tiny", max_tokens=900, messages=ASKED, tools=CLAUDE, tool_choice={"type": "none"})
    assert tooled.last.tools is None


def test_ollamas_calls(llama: ollama.Client, tooled: Running) -> None:
    whole = llama.chat("tiny", ASKED, tools=TOOLS)
    calls = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls or ()]
    assert (whole.message.content, calls) == ("Let me see.", [("weather", {"city": "Basel"}), ("now", {})])
    parts = list(llama.chat("tiny", ASKED, tools=TOOLS, stream=True))
    streamed = [call for part in parts for call in part.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in streamed] == calls
    assert "".join(part.message.content or "" for part in parts) == "Let me see."
    tooled.engine.script = "It shines."
    results = [{"role": "tool", "tool_name": name, "content": "sun"} for name, _ in reversed(calls)]
    done = llama.chat("tiny", [*ASKED, whole.message, *results], tools=TOOLS)
    assert done.message.content == "It shines."
    assert "sun of now<|im_end|>\n<|im_start|>tool\nsun of weather" in tooled.prompt
    assert "tools" in (llama.show("tiny").capabilities or ())
    with tooled.http() as http:
        assert http.get("/v1/models").json()["data"][0]["capabilities"] == ["completion", "tools"]

"""OpenAI's Responses, by OpenAI's own client."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import msgspec
import openai
import pydantic
import pytest

from engine.doors.http.responses.items import ItemIn, conversation
from engine.doors.http.responses.store import Owner, ResponseStore
from engine.doors.http.responses.tools import LEFT_OUT, InputText
from engine.doors.http.responses.types import ResponsesIn
from engine.doors.http.responses.writer import NO_INPUT
from engine.doors.http.service import NOTICE_HEADER
from engine.protocol import Sampling, Thinking
from engine.protocol.access import AddKey
from engine.protocol.operations import ADD_KEY
from engine.services.answers.refused import Refused
from engine.services.operations import perform
from engine.text.formats.calls import CUT_SHORT
from tests.engine.doors.network.conftest import Running
from tests.kit.tool_scripts import PATCH_GRAMMAR, QWEN, SCHEMA

WEATHER: Any = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": True}
RESULT = {"type": "function_call_output", "output": "sun"}
LARK = 'start: "*** Begin Patch" /(.|\\n)*/'
PATCH: Any = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": LARK},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Basel"}}\n</tool_call>'
TEXT = '*** Begin Patch\n+ "é" \\\n*** End Patch'
WRITTEN = json.dumps({"name": "apply_patch", "arguments": {"input": TEXT}}, ensure_ascii=False)
PATCHED = f"<tool_call>\n{WRITTEN}\n</tool_call>"


@pytest.fixture
def tooled(running: Running) -> Running:
    running.engine.speak(QWEN, f"Let me see.{CALL}")
    return running


def written(running: Running) -> list[int]:
    """The ids that the engine answered the last request with."""
    command = running.last
    script = running.engine.loaded.files.tokenizer.encode(running.engine.script, special=False)
    return (script or list(reversed(command.prompt_ids)))[: command.sampling.max_tokens]


def test_a_response_whole_and_as_events(api: openai.OpenAI, running: Running) -> None:
    given: Any = {"model": "tiny", "input": "abc", "instructions": "be kind", "max_output_tokens": 5}
    running.engine.cached = 3
    response = api.responses.create(
        **given, temperature=0.5, top_p=0.9, metadata={"a": "b"}, user="me", extra_body={"top_k": 7, "seed": 4}
    )
    sampling = running.last.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (0.5, 0.9, 7, 5)
    assert running.prompt.endswith(
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n"
    )
    assert response.output_text == running.engine.loaded.files.tokenizer.decode(written(running))
    assert (response.status, response.model, response.object) == ("completed", "tiny", "response")
    assert (response.metadata, response.user, response.instructions) == ({"a": "b"}, "me", "be kind")
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.5, 0.9, 5)
    assert response.usage is not None
    assert response.usage.input_tokens == len(running.last.prompt_ids)
    assert response.usage.input_tokens_details.cached_tokens == 3
    assert (response.usage.output_tokens, response.usage.total_tokens) == (5, response.usage.input_tokens + 5)
    with api.responses.stream(**given) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))  # type: ignore[union-attr]
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_thinking_is_an_item_and_goes_back(api: openai.OpenAI, running: Running) -> None:
    running.engine.thinks = 2
    given: Any = {"model": "tiny", "input": "abc", "max_output_tokens": 5, "include": ["reasoning.encrypted_content"]}
    response = api.responses.create(**given, reasoning={"effort": "low"})
    thought, said = response.output
    assert (thought.type, said.type) == ("reasoning", "message")
    assert thought.summary == []
    assert thought.content is not None
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 2
    with api.responses.stream(**given) as stream:
        deltas = [event.delta for event in stream if event.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == thought.content[0].text
    sent = [msgspec.convert(item.model_dump(exclude_none=True), ItemIn) for item in response.output]
    assert conversation([("", item) for item in sent])[0].thinking == thought.content[0].text
    # Codex sends back what it does not read, and leaves out what it does.
    assert thought.encrypted_content is not None
    hidden = ItemIn(type="reasoning", encrypted_content=thought.encrypted_content)
    message = conversation([("", hidden), ("", sent[1])])[0]
    assert (message.thinking, message.content) == (thought.content[0].text, response.output_text)
    elsewhere = ItemIn(type="reasoning", encrypted_content="gAAAA")
    assert conversation([("", elsewhere), ("", sent[1])])[0].thinking == ""


@pytest.mark.parametrize(
    ("reasoning", "wanted"),
    [({"effort": "none"}, Thinking(on=False)), ({"effort": "high"}, Thinking(effort="high")), ({}, Thinking())],
)
def test_efforts(reasoning: Any, wanted: Thinking) -> None:
    assert msgspec.convert({"reasoning": reasoning}, ResponsesIn).wanted_thinking == wanted


def test_an_answer_that_a_limit_ended_is_incomplete(api: openai.OpenAI, running: Running) -> None:
    running.engine.says_length = True
    response = api.responses.create(model="tiny", input="abc", max_output_tokens=3)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"  # type: ignore[union-attr]
    with api.responses.stream(model="tiny", input="abc", max_output_tokens=3) as stream:
        assert [event.type for event in stream][-1] == "response.incomplete"


def test_an_answer_that_is_cut_fails(api: openai.OpenAI, running: Running) -> None:
    running.engine.cut = ("error", "It broke.")
    with api.responses.create(model="tiny", input="abc", stream=True) as stream:
        *_, error, failed = stream
    assert error.type == "error"
    assert error.message == "It broke."
    assert failed.type == "response.failed"
    assert failed.response.error is not None
    assert (failed.response.error.code, failed.response.error.message) == ("server_error", "It broke.")
    with pytest.raises(openai.InternalServerError, match="It broke"):
        api.responses.create(model="tiny", input="abc")


def test_a_probe_with_nothing_to_say_is_answered(api: openai.OpenAI, running: Running) -> None:
    nothing: Any = ["", []]
    for input in nothing:
        response = api.responses.create(model="tiny", input=input, max_output_tokens=1)
        assert response.usage is not None
        assert response.usage.output_tokens == 1
    assert running.prompt.endswith("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n")


def test_logprobs_where_they_are_included(api: openai.OpenAI, running: Running) -> None:
    include: Any = ["message.output_text.logprobs"]
    response = api.responses.create(model="tiny", input="abc", max_output_tokens=3, include=include, top_logprobs=2)
    part = response.output[0].content[0]  # type: ignore[union-attr, index]
    assert "".join(token.token for token in part.logprobs or ()) == response.output_text  # type: ignore[union-attr]
    assert [len(token.top_logprobs) for token in part.logprobs or ()] == [2, 2, 2]  # type: ignore[union-attr]
    assert running.last.sampling.logprobs == 2


class Weather(pydantic.BaseModel):
    city: str


def test_an_answer_in_the_form_of_a_class(api: openai.OpenAI, running: Running) -> None:
    running.engine.speak(QWEN, '{"city": "Basel"}')
    response = api.responses.parse(model="tiny", input="abc", text_format=Weather)
    assert response.output_parsed == Weather(city="Basel")
    grammar = running.last.grammar
    assert grammar is not None
    assert grammar.constraint(0, None).allowed([]) is not None
    told = api.responses.create(model="tiny", input="abc", text={"format": {"type": "json_object"}})
    assert told.text is not None
    assert told.text.format is not None
    assert told.text.format.type == "json_object"
    assert running.last.grammar is not None


def test_calls_and_their_results(api: openai.OpenAI, tooled: Running) -> None:
    given: Any = {"model": "tiny", "input": "abc", "tools": [WEATHER]}
    response = api.responses.create(**given)
    message, call = response.output
    assert '"name": "weather", "description": "Tells it."' in tooled.prompt
    assert (message.type, call.type) == ("message", "function_call")
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Basel"})
    with api.responses.stream(**given) as stream:
        events = list(stream)
        final = stream.get_final_response()
    parts = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(parts) == call.arguments == final.output[1].arguments  # type: ignore[union-attr]
    before = [*tooled.last.prompt_ids, *written(tooled)]
    tooled.engine.script = "It shines."
    result: Any = {**RESULT, "call_id": final.output[1].call_id}  # type: ignore[union-attr]
    told: Any = [{"role": "user", "content": "abc"}, *final.output, result]
    assert api.responses.create(**{**given, "input": told}).output_text == "It shines."
    assert "sun of weather<|im_end|>" in tooled.prompt
    resent = list(tooled.last.prompt_ids)
    assert resent[: len(before)] == before
    done = api.responses.create(**{**given, "input": [result]}, previous_response_id=final.id)
    assert done.output_text == "It shines."
    assert list(tooled.last.prompt_ids) == resent


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", ("required", [])),
        ({"type": "function", "name": "weather"}, ("required", ["weather"])),
        ({"type": "custom", "name": "apply_patch"}, ("required", ["apply_patch"])),
        ({"type": "allowed_tools", "mode": "auto", "tools": [WEATHER]}, ("auto", ["weather"])),
    ],
)
def test_choices(choice: Any, expected: Any, api: openai.OpenAI, tooled: Running) -> None:
    given: Any = {"model": "tiny", "input": "abc", "tools": [WEATHER, PATCH], "parallel_tool_calls": False}
    response = api.responses.create(**given, tool_choice=choice)
    assert response.parallel_tool_calls is False
    tools = tooled.last.tools
    assert tools is not None
    assert (tools.choice, tools.names, tools.parallel) == (*expected, False)
    api.responses.create(**given, tool_choice="none")
    assert tooled.last.tools is None


def test_custom_tools_are_called_with_text(api: openai.OpenAI, tooled: Running) -> None:
    tooled.engine.script = PATCHED
    given: Any = {"model": "tiny", "input": "abc", "tools": [PATCH]}
    with api.responses.create(**given, stream=True) as stream:
        events = list(stream)
    parts = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(parts) == TEXT
    [call] = events[-1].response.output  # type: ignore[union-attr]
    assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", TEXT)
    assert json.dumps(LARK)[1:-1] in tooled.prompt
    before = [*tooled.last.prompt_ids, *written(tooled)]
    tooled.engine.script = "Done."
    told: Any = [
        {"role": "user", "content": "abc"},
        call,
        {"type": "custom_tool_call_output", "call_id": call.call_id, "output": [{"type": "input_text", "text": "ok"}]},
    ]
    assert api.responses.create(**{**given, "input": told}).output_text == "Done."
    assert "ok of apply_patch<|im_end|>" in tooled.prompt
    assert tooled.last.prompt_ids[: len(before)] == before


def test_tools_of_a_namespace(api: openai.OpenAI, tooled: Running) -> None:
    """So Codex sends those of its user's MCP servers."""
    sky: Any = {"type": "namespace", "name": "mcp__sky", "description": "Weather.", "tools": [WEATHER, {"type": "x"}]}
    tooled.engine.script = CALL.replace("weather", "mcp__sky__weather")
    given: Any = {"model": "tiny", "input": "abc", "tools": [sky]}
    response = api.responses.create(**given)
    [call] = response.output
    assert (call.name, call.namespace, call.arguments) == ("weather", "mcp__sky", '{"city": "Basel"}')  # type: ignore[union-attr]
    assert [inner.name for inner in response.tools[0].tools] == ["weather"]  # type: ignore[union-attr]
    assert (response.model_extra or {})["notices"] == [LEFT_OUT.format(kinds="x")]
    before = [*tooled.last.prompt_ids, *written(tooled)]
    tooled.engine.script = "It shines."
    told: Any = [{"role": "user", "content": "abc"}, call, {**RESULT, "call_id": call.call_id}]  # type: ignore[union-attr]
    api.responses.create(**{**given, "input": told})
    assert tooled.last.prompt_ids[: len(before)] == before
    assert "sun of mcp__sky__weather" in tooled.prompt
    with pytest.raises(openai.BadRequestError) as refused:
        api.responses.create(**{**given, "tools": [{**sky, "tools": [{"type": "function"}]}]})
    assert refused.value.param == "tools[0].tools[0].name"


def test_the_text_of_a_call_is_told_as_it_is_written() -> None:
    for escapes in (True, False):
        told = f"{TEXT} 😀"
        arguments = json.dumps({"input": told}, ensure_ascii=escapes) + " "
        for size in (1, 2, 3, 7, len(arguments)):
            text = InputText()
            parts = [text.push(arguments[at : at + size]) for at in range(0, len(arguments), size)]
            assert "".join(parts) == told
            assert text.whole() == (told, True)
    for given, whole in (
        ('{"patch": "a"}', ('{"patch": "a"}', False)),
        ('"a"', ("a", True)),
        ('{"input": "a\\u00', ("a", True)),
        ("", ("", False)),
    ):
        text = InputText()
        text.push(given)
        assert text.whole() == whole


def test_a_call_without_its_text_is_told_as_it_stands(api: openai.OpenAI, tooled: Running) -> None:
    tooled.engine.script = PATCHED.replace('"input"', '"patch"')
    response = api.responses.create(model="tiny", input="abc", tools=[PATCH])
    [call] = response.output
    assert json.loads(call.input) == {"patch": TEXT}  # type: ignore[union-attr]
    assert NO_INPUT.format(name="apply_patch") in (response.model_extra or {})["notices"]
    tooled.engine.script = "So: <tool_call>\nweather in Basel\n</tool_call>"
    response = api.responses.create(model="tiny", input="abc", tools=[WEATHER])
    assert "weather in Basel" in response.output_text
    assert (response.model_extra or {})["notices"] == [CUT_SHORT]


def test_a_regular_expression_is_held_to_where_the_call_is_required(api: openai.OpenAI, tooled: Running) -> None:
    digits = {**PATCH, "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+|none"}}
    response = api.responses.create(model="tiny", input="abc", tools=[digits], tool_choice="required")  # type: ignore[list-item]
    assert "notices" not in (response.model_extra or {})
    grammar, tokenizer = tooled.last.grammar, tooled.engine.loaded.files.tokenizer
    assert grammar is not None
    begun = tokenizer.encode(PATCHED[: PATCHED.index("***")], special=False)
    allowed = grammar.constraint(0, None).allowed(begun)
    assert allowed is not None
    begins = {tokenizer.piece(id)[:1] for id in range(402) if allowed.words[id >> 5] >> (id & 31) & 1} - {""}
    assert begins == {*"0123456789n"}


def test_what_is_left_out_is_told(tooled: Running) -> None:
    tools = [
        WEATHER,
        PATCH,
        {"type": "web_search"},
        {"type": "mcp", "server_label": "x"},
        {"type": "a\r\né"},
    ]
    with tooled.http() as http:
        answer = http.post("/v1/responses", json={"input": "abc", "tools": tools}).raise_for_status()
    body = answer.json()
    assert [tool["name"] for tool in body["tools"]] == ["weather", "apply_patch"]
    assert body["notices"][0] == LEFT_OUT.format(kinds="web_search, mcp, a\r\né")
    assert "grammar of apply_patch" in body["notices"][1]
    assert "web_search, mcp, a\\r\\n\\xe9." in answer.headers[NOTICE_HEADER]
    assert "web_search" not in tooled.prompt


@pytest.mark.parametrize(
    ("format", "says"),
    [
        ({"syntax": "lark", "definition": 'start: a\n\nb: "x"'}, 'at 1(8): unknown name: "a".'),
        ({"syntax": "regex", "definition": "(a/b"}, "regex parse error"),
    ],
)
def test_a_grammar_that_cannot_be_read_is_refused_with_its_place(
    tooled: Running, format: dict[str, str], says: str
) -> None:
    tool = {**PATCH, "format": {"type": "grammar", **format}}
    with tooled.http() as http:
        answer = http.post("/v1/responses", json={"input": "abc", "tools": [WEATHER, tool]})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tools[1].format.definition")
    assert "The grammar of the tool 'apply_patch' cannot be read: " in error["message"]
    assert says in error["message"]


CODER = f"{{# <tool_call> <function= <parameter= #}}{QWEN}"
"""The template of a model that writes texts as they stand."""


@pytest.mark.parametrize("choice", ["auto", {"type": "custom", "name": "apply_patch"}])
@pytest.mark.parametrize(
    "format",
    [{"syntax": "lark", "definition": PATCH_GRAMMAR}, {"syntax": "regex", "definition": r"\*\*\* Begin (/|Patch)"}],
)
def test_a_text_is_held_where_the_model_writes_it_as_it_stands(
    tooled: Running, choice: Any, format: dict[str, str]
) -> None:
    tooled.engine.speak(CODER, "Done.")
    tool = {**PATCH, "format": {"type": "grammar", **format}}
    with tooled.http() as http:
        body = {"input": "abc", "tools": [WEATHER, tool], "tool_choice": choice}
        answer = http.post("/v1/responses", json=body).raise_for_status()
    assert "notices" not in answer.json()
    grammar = tooled.last.grammar
    assert grammar is not None
    head = "<tool_call>\n<function=apply_patch>\n<parameter=input>\n"
    text = head if choice != "auto" else f"Let me see. {head}"
    constraint = grammar.constraint(0, None)
    ids = tooled.engine.loaded.files.tokenizer.encode(text, special=False)
    assert constraint.allowed(ids) is not None
    assert not constraint.failed
    assert tooled.engine.loaded.files.tokenizer.decode(constraint.forced(ids)).startswith("*** Begin ")


def test_conversations_go_on_from_what_is_stored(api: openai.OpenAI, running: Running) -> None:
    running.engine.context = 4096
    first = api.responses.create(model="tiny", input="abc", instructions="be kind", max_output_tokens=4)
    before = [*running.last.prompt_ids, *written(running)]
    second = api.responses.create(
        model="tiny", input="def", instructions="be kind", max_output_tokens=4, previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    asked = list(running.last.prompt_ids)
    assert asked[: len(before)] == before
    resent: Any = [{"role": "user", "content": "abc"}, *first.output, {"role": "user", "content": "def"}]
    api.responses.create(model="tiny", input=resent, instructions="be kind", max_output_tokens=4)
    assert list(running.last.prompt_ids) == asked
    referred: Any = [resent[0], {"type": "item_reference", "id": first.output[0].id}, resent[-1]]
    api.responses.create(model="tiny", input=referred, instructions="be kind", max_output_tokens=4)
    assert list(running.last.prompt_ids) == asked
    # Instructions are those of a request alone.
    api.responses.create(model="tiny", input="def", max_output_tokens=4, previous_response_id=first.id)
    assert "be kind" not in running.prompt
    assert api.responses.retrieve(first.id).output_text == first.output_text
    items = api.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.type for item in items.data] == ["message", "message"]
    assert items.has_more
    assert [item.id for item in items] == [item.id for item in api.responses.input_items.list(second.id)][::-1]
    api.responses.delete(first.id)
    for call in (
        lambda: api.responses.retrieve(first.id),
        lambda: api.responses.create(model="tiny", input="def", previous_response_id=second.id),
    ):
        with pytest.raises(openai.NotFoundError):
            call()


def test_what_is_not_to_be_stored_is_not(api: openai.OpenAI) -> None:
    response = api.responses.create(model="tiny", input="abc", store=False)
    with pytest.raises(openai.NotFoundError) as refused:
        api.responses.create(model="tiny", input="abc", previous_response_id=response.id)
    error: Any = refused.value.body
    assert (error["param"], error["code"]) == ("previous_response_id", "previous_response_not_found")
    assert "Send the whole conversation" in error["message"]


def test_the_store_is_bounded_and_forgets_what_was_not_used() -> None:
    wanted = ResponsesIn(input="abc")
    store = ResponseStore(most=3, most_bytes=10_000)
    names: list[str] = []
    for number in range(5):
        previous = names[0] if number == 2 else None
        response = msgspec.structs.replace(wanted, previous_response_id=previous).begun("tiny", Sampling(), ())
        names.append(response.id)
        store.keep(Owner("me"), wanted.items, response)
    there = [name for name in names if _is_there(store, name)]
    assert there == [names[2], names[3], names[4]]
    with pytest.raises(Refused):
        store.find(Owner("you"), names[4])
    store.keep(Owner("me"), ResponsesIn(input="x" * 9_000).items, wanted.begun("tiny", Sampling(), ()))
    assert not any(_is_there(store, name) for name in names)


def _is_there(store: ResponseStore, name: str) -> bool:
    try:
        store.find(Owner("me"), name)
    except Refused:
        return False
    return True


@pytest.mark.parametrize(
    ("given", "param", "told"),
    [
        ({"background": True, "store": False}, "background", "only be used when `store` is true"),
        ({"background": True, "stream": True}, "stream", "in the background"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "is not supported"),
        ({"conversation": "conv_1"}, "conversation", "is not supported"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0].type", "'web_search_call' are not"),
        ({"input": [{"type": "message", "role": "critic", "content": "a"}]}, "input[0].role", "'critic'"),
        ({"input": [{"role": "user"}]}, "input[0].content", "no content"),
        ({"input": [{}]}, "input[0]", "neither a type nor a role"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name", "no name"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input", "no item 'msg_1'"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].type",
            "'input_file'",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a/b.png"}]}]},
            "input[0].content[0].image_url",
            "--fetch-pictures",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]},
            "input[0].content[0].image_url",
            "Files are not kept",
        ),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "no schema"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "x"}}}},
            "text.format",
            "cannot be served",
        ),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "not supported"),
        ({"include": ["thoughts"]}, "include[0]", "cannot be included"),
        ({"top_logprobs": 99}, "top_logprobs", "0 to"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "no name"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice", "there are none"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice", "does not"),
        ({"truncation": "some"}, "truncation", "not understood"),
        ({"inputs": "abc"}, "inputs", "Did you mean 'input'?"),
    ],
)
def test_what_is_refused(given: Any, param: str, told: str, running: Running) -> None:
    with running.http() as http:
        answer = http.post("/v1/responses", json={"model": "tiny", "input": "abc"} | given)
    assert answer.status_code in (400, 404), answer.text
    error = answer.json()["error"]
    assert told in error["message"]
    assert error["param"] == param


def test_a_response_in_the_background(api: openai.OpenAI, running: Running) -> None:
    given: Any = {"model": "tiny", "input": "abc", "max_output_tokens": 5, "background": True}
    running.engine.gate.clear()
    cancelled, whole = api.responses.create(**given), api.responses.create(**given)
    assert (whole.status, whole.background, whole.output) == ("queued", True, [])
    assert api.responses.cancel(cancelled.id).status == "cancelled"
    running.engine.gate.set()
    while (found := api.responses.retrieve(whole.id)).status in ("queued", "in_progress"):
        pass
    assert found.status == "completed"
    assert found.output_text == running.engine.loaded.files.tokenizer.decode(written(running))
    assert api.responses.retrieve(cancelled.id).status == "cancelled"
    assert api.responses.cancel(whole.id).status == "completed"
    further = api.responses.create(model="tiny", input="abc", previous_response_id=whole.id)
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        api.responses.cancel(further.id)
    running.engine.cut = ("error", "It broke.")
    broken = api.responses.create(**given)
    while (found := api.responses.retrieve(broken.id)).status in ("queued", "in_progress"):
        pass
    assert found.status == "failed"
    api.responses.delete(broken.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        api.responses.retrieve(broken.id)


def test_what_the_model_read_and_wrote(api: openai.OpenAI, running: Running) -> None:
    response = api.responses.create(model="tiny", input="abc", extra_body={"enable_response_messages": True})
    assert response.model_extra is not None
    (read,), (wrote,) = (response.model_extra[f"{name}_messages"] for name in ("input", "output"))
    assert (read["tokens"], read["message"]) == (list(running.last.prompt_ids), running.prompt)
    assert wrote["tokens"] == written(running)
    assert "input_messages" not in (api.responses.create(model="tiny", input="abc").model_extra or {})


def test_what_the_template_is_given(api: openai.OpenAI, running: Running) -> None:
    kwargs = {"enable_thinking": False, "custom": 1}
    api.responses.create(model="tiny", input="abc", extra_body={"chat_template_kwargs": kwargs})
    asked = msgspec.convert({"chat_template_kwargs": kwargs}, ResponsesIn)
    assert asked.wanted_thinking == Thinking(on=False)
    assert running.last.thinks is False


def test_a_prompt_that_is_too_long(api: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        api.responses.create(model="tiny", input="a" * 4000)
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "input"


def test_a_stream_says_that_it_goes_on_while_there_is_nothing_to_tell(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.doors.http.service.KEEP_ALIVE_SECONDS", 0.01)
    running.engine.gate.clear()
    body = {"input": "abc", "stream": True}
    with running.http() as http, http.stream("POST", "/v1/responses", json=body) as answer:
        kinds = (line for line in answer.iter_lines() if line.startswith("event: "))
        assert [next(kinds) for _ in range(4)] == ["event: response.created", *3 * ["event: response.in_progress"]]
        running.engine.gate.set()
        assert [*kinds][-1] == "event: response.completed"


def test_what_one_key_asked_no_other_sees(running: Running) -> None:
    key = perform(ADD_KEY, AddKey(name="laptop")).key
    with running.http() as mine, httpx.Client(base_url=running.url, headers={"x-api-key": key}) as theirs:
        name = mine.post("/v1/responses", json={"input": "abc"}).json()["id"]
        assert mine.get(f"/v1/responses/{name}").json()["id"] == name
        for ask in (theirs.get, theirs.delete):
            assert ask(f"/v1/responses/{name}").json()["error"]["code"] == "response_not_found"
        assert theirs.get(f"/v1/responses/{name}/input_items").status_code == 404
        body = {"input": "abc", "previous_response_id": name}
        assert theirs.post("/v1/responses", json=body).status_code == 404


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "a"}, {"order": "up"}, {"after": "msg_1"}])
def test_queries_that_cannot_be_answered(query: dict[str, str], running: Running) -> None:
    with running.http() as http:
        name = http.post("/v1/responses", json={"input": "abc"}).json()["id"]
        error = http.get(f"/v1/responses/{name}/input_items", params=query).json()["error"]
        assert error["param"] == next(iter(query))
        assert http.get(f"/v1/responses/{name}", params={"stream": "true"}).status_code == 400


ASKED: Any = {"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}
PIRATE: Any = {"type": "message", "role": "system", "content": "You are a pirate."}
HELLO: Any = {"type": "message", "role": "assistant", "content": "Hello Alice!"}
RESOURCE = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "user", "usage",
    "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier",
    "prompt_cache_key",
}  # fmt: skip
"""What the Open Responses specification wants in each response."""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"input": [ASKED]}, "message"),
        ({"input": [PIRATE, ASKED]}, "message"),
        ({"input": [ASKED], "tools": [{**WEATHER, "strict": None}]}, "function_call"),
        ({"input": [ASKED, HELLO, ASKED]}, "message"),
    ],
    ids=["basic", "system prompt", "tool calling", "multi-turn"],
)
def test_cases_of_open_responses(body: dict[str, Any], kind: str, tooled: Running) -> None:
    """The cases of its compliance suite; that of pictures is below, that of previous_response_id above."""
    with tooled.http() as http:
        response = http.post("/v1/responses", json={"model": "tiny", **body}).raise_for_status().json()
        text = http.post("/v1/responses", json={"model": "tiny", **body, "stream": True}).raise_for_status().text
    sent = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    for told in (response, sent[-1]["response"]):
        assert set(told) >= RESOURCE
        assert told["status"] == "completed"
        assert kind in [item["type"] for item in told["output"]]
        assert all(item["id"] and item["status"] == "completed" for item in told["output"])
    for message in body["input"]:
        assert message["content"] in tooled.prompt


def test_system_messages_before_all_others_are_one(tooled: Running) -> None:
    body = {"input": [{**PIRATE, "role": "developer"}, PIRATE, ASKED], "instructions": "Be kind."}
    with tooled.http() as http:
        http.post("/v1/responses", json=body).raise_for_status()
    assert "<|im_start|>system\nBe kind.\n\nYou are a pirate.\n\nYou are a pirate.<|im_end|>" in tooled.prompt


def test_pictures(running: Running) -> None:
    data = "data:image/png;base64," + base64.b64encode(b"x").decode()
    part = {"type": "input_image", "image_url": data}
    asked = {"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, part]}
    items = msgspec.convert({"input": [asked, {"type": "function_call_output", "output": [part]}]}, ResponsesIn)
    messages = conversation(items.placed((), items.items))
    assert [message.pictures for message in messages] == [[b"x"], [b"x"]]
    with running.http() as http:
        answer = http.post("/v1/responses", json={"input": [asked]})
    assert answer.status_code == 400
    assert "reads text only" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "input"


def test_codex_finds_its_catalogue(running: Running) -> None:
    with running.http() as http:
        body = http.get("/v1/models").json()
    [model] = body["models"]
    assert model["slug"] == body["data"][0]["id"] == "tiny"
    assert (model["context_window"], model["apply_patch_tool_type"]) == (64, "freeform")
    # Without one of these it drops the whole list.
    assert set(model) >= {
        "slug", "display_name", "description", "supported_reasoning_levels", "shell_type", "visibility",
        "supported_in_api", "priority", "upgrade", "base_instructions", "supports_reasoning_summaries",
        "support_verbosity", "default_verbosity", "truncation_policy", "supports_parallel_tool_calls",
        "experimental_supported_tools",
    }  # fmt: skip


def test_strangers_and_unknown_models(api: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        api.with_options(api_key="wrong").responses.create(model="tiny", input="abc")
    with pytest.raises(openai.NotFoundError):
        api.responses.create(model="gpt", input="abc")

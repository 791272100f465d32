"""The tiny model that calls tools, which comes with the program: whole round trips (call, result, answer) by the
official clients, streamed and not, over the real engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import anthropic
import ollama
import openai
import pytest

from engine.library.paths import bundled_folder
from engine.protocol import Set, keys
from tests.kit.servers import TOKEN, Serving

MODEL = "kvasir-tools"
TOOLS: dict[str, dict[str, str]] = {
    "add": {"a": "integer", "b": "integer"},
    "weather": {"city": "string"},
    "now": {},
    "write_file": {"path": "string", "content": "string"},
}


class Trip(NamedTuple):
    """A question, the calls that it takes, what they result in, and the answer."""

    question: str
    name: str
    arguments: list[dict[str, Any]]
    results: list[str]
    answer: str


TRIPS = [
    Trip(
        "What is the weather in Basel?",
        "weather",
        [{"city": "Basel"}],
        ["sunny, 21 degrees"],
        "The weather in Basel is sunny, 21 degrees.",
    ),
    Trip(
        "Tell me the weather in Oslo and in Lima.",
        "weather",
        [{"city": "Oslo"}, {"city": "Lima"}],
        ["snow, -4 degrees", "cloudy, 18 degrees"],
        "The weather in Oslo is snow, -4 degrees. The weather in Lima is cloudy, 18 degrees.",
    ),
    Trip("What time is it?", "now", [{}], ["14:05"], "It is 14:05."),
    Trip("What is 17 plus 25?", "add", [{"a": 17, "b": 25}], ["42"], "17 plus 25 is 42."),
    Trip(
        "Write to notes.txt the text buy milk",
        "write_file",
        [{"path": "notes.txt", "content": "buy milk"}],
        ["done"],
        "I wrote notes.txt.",
    ),
]
TRIED = pytest.mark.parametrize("trip", TRIPS, ids=["one", "two at once", "no arguments", "numbers", "texts"])
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def schema_of(name: str) -> dict[str, Any]:
    properties = {each: {"type": kind, "description": f"The {each}."} for each, kind in TOOLS[name].items()}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


FUNCTIONS: Any = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema_of(name)}}
    for name in TOOLS
]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVASIR_HOME", str(tmp_path_factory.mktemp("home")))
        made = Serving(bundled_folder() / MODEL).loaded()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def url(serving: Serving) -> str:
    return serving.url


@pytest.fixture(scope="module")
def api(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0, timeout=300) as client:
        yield client


def asked(api: openai.OpenAI, messages: list[Any], streamed: bool = False, **fields: Any) -> Any:
    """The only choice of an answer, however it came."""
    given: Any = {"model": MODEL, "messages": messages, "tools": FUNCTIONS, "temperature": 0, **fields}
    if not streamed:
        return api.chat.completions.create(**given).choices[0]
    with api.chat.completions.stream(**given) as stream:
        return stream.get_final_completion().choices[0]


def calls_of(choice: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]


@TRIED
@STREAMED
@pytest.mark.parametrize("tool_choice", ["auto", "required"])
def test_openais_client(api: openai.OpenAI, trip: Trip, streamed: bool, tool_choice: str) -> None:
    messages: list[Any] = [{"role": "user", "content": trip.question}]
    choice = asked(api, messages, streamed, tool_choice=tool_choice)
    assert calls_of(choice) == [(trip.name, each) for each in trip.arguments]
    assert (choice.finish_reason, choice.message.content or "") == ("tool_calls", "")
    messages.append(
        {
            "role": "assistant",
            "tool_calls": [
                call.model_dump(include={"id": True, "type": True, "function": {"name", "arguments"}})
                for call in choice.message.tool_calls
            ],
        }
    )
    for call, result in zip(choice.message.tool_calls, trip.results, strict=True):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    done = asked(api, messages, streamed)
    assert (done.message.content, done.message.tool_calls or [], done.finish_reason) == (trip.answer, [], "stop")


@TRIED
@STREAMED
@pytest.mark.parametrize("kind", ["auto", "any"])
def test_anthropics_client(url: str, trip: Trip, streamed: bool, kind: str) -> None:
    tools = [{"name": name, "description": "A tool.", "input_schema": schema_of(name)} for name in TOOLS]
    given: Any = {"model": MODEL, "max_tokens": 200, "tools": tools}
    messages: list[Any] = [{"role": "user", "content": trip.question}]
    with anthropic.Anthropic(base_url=url, api_key=TOKEN, max_retries=0, timeout=300) as client:

        def ask(**fields: Any) -> anthropic.types.Message:
            if not streamed:
                return client.messages.create(**given, **fields)
            with client.messages.stream(**given, **fields) as stream:
                return stream.get_final_message()

        called = ask(messages=messages, tool_choice={"type": kind})
        blocks: list[Any] = list(called.content)
        assert [(block.name, block.input) for block in blocks] == [(trip.name, each) for each in trip.arguments]
        assert called.stop_reason == "tool_use"
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": result}
            for block, result in zip(blocks, trip.results, strict=True)
        ]
        written = {"role": "assistant", "content": [block.model_dump() for block in blocks]}
        done = ask(messages=[*messages, written, {"role": "user", "content": results}])
    assert [(block.type, getattr(block, "text", "")) for block in done.content] == [("text", trip.answer)]
    assert done.stop_reason == "end_turn"


@TRIED
@STREAMED
def test_ollamas_client(url: str, trip: Trip, streamed: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": trip.question}]
    given: Any = {"tools": FUNCTIONS, "options": {"temperature": 0}}
    with ollama.Client(url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300) as client:

        def ask() -> tuple[str, list[Any]]:
            if not streamed:
                parts = [client.chat(MODEL, messages, **given)]
            else:
                parts = list(client.chat(MODEL, messages, stream=True, **given))
            text = "".join(part.message.content or "" for part in parts)
            return text, [call for part in parts for call in part.message.tool_calls or ()]

        text, calls = ask()
        assert [(call.function.name, call.function.arguments) for call in calls] == [
            (trip.name, each) for each in trip.arguments
        ]
        assert text == ""
        messages.append({"role": "assistant", "tool_calls": [call.model_dump() for call in calls]})
        messages += [{"role": "tool", "tool_name": trip.name, "content": each} for each in trip.results]
        assert ask() == (trip.answer, [])


def test_what_needs_no_tool_is_said(api: openai.OpenAI) -> None:
    """Also with tools; and without the one that a question needs, or without any, none is called."""
    weather = [{"role": "user", "content": TRIPS[0].question}]
    assert asked(api, [{"role": "user", "content": "Hello"}]).message.content == "Hello! What shall I do?"
    for fields in ({"tools": FUNCTIONS[2:]}, {"tools": openai.omit}, {"tool_choice": "none"}):
        choice = asked(api, weather, **fields)
        assert (choice.message.content, choice.message.tool_calls) == ("I have no tool for that.", None)


def test_a_result_that_is_an_error_is_told(api: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    told = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "error: cold clock"},
    ]
    assert asked(api, told).message.content == "That failed: cold clock."


@pytest.fixture
def set_to(serving: Serving) -> Iterator[Callable[[str, Any], None]]:
    before: dict[str, Any] = {}

    def put(key: str, value: Any) -> None:
        before.setdefault(key, serving.value(key))
        serving.engine.submit(Set(key=key, value=value))
        serving.metrics()  # answered after it
        assert serving.value(key) == value

    yield put
    for key, value in list(before.items()):
        put(key, value)


@pytest.mark.parametrize("tool_choice", ["auto", "required"])
def test_the_same_tokens_with_speculation_and_without(
    api: openai.OpenAI, serving: Serving, set_to: Callable[[str, Any], None], tool_choice: str
) -> None:
    set_to(keys.BATCH_INVARIANT, True)
    question = [{"role": "user", "content": TRIPS[1].question}]

    def written(speculation: str) -> tuple[Any, Any]:
        set_to(keys.SPECULATION, speculation)
        choice = asked(api, question, logprobs=True, tool_choice=tool_choice)
        return calls_of(choice), [each.token for each in choice.logprobs.content]

    plain = written("off")
    drafted = serving.metrics()["proposed_total"]
    assert plain[0] == [(TRIPS[1].name, each) for each in TRIPS[1].arguments]
    assert written("ngram") == plain
    assert serving.metrics()["proposed_total"] > drafted

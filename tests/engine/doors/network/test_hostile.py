"""Requests that break servers, in each dialect: answered, or refused in its own shape, and no other answer changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import torch

from engine.loop.stepper import LOST_GRAMMAR
from engine.protocol import Set, keys
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from tests.engine.doors.network.conftest import Running, is_error
from tests.engine.text.samples import write_folder
from tests.kit.servers import Client, Serving
from tests.kit.tool_scripts import QWEN, SCHEMA

PICTURE = "iVBORw0KGgo="
ASK = ("user", "abc")


class Asked(NamedTuple):
    """A request in no dialect yet. A turn is a user's, a call by a tool's name, or its result, a text or a picture."""

    turns: Sequence[tuple[str, str]] = (ASK,)
    tools: Sequence[tuple[str, Any]] = ()
    schema: Any = None
    """Of the answer."""
    forced: bool = False
    kind: str = ""
    """Of a further tool."""
    stream: bool = False
    most: int = 4000
    """Tokens of the answer."""


def chat(asked: Asked) -> dict[str, Any]:
    functions = [{"type": "function", "function": {"name": name, "parameters": given}} for name, given in asked.tools]
    turns = {
        "user": lambda text: {"role": "user", "content": text},
        "call": lambda name: {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": name}}]},
        "result": lambda text: {"role": "tool", "tool_call_id": "c", "content": text},
        "picture": lambda data: {
            "role": "tool",
            "tool_call_id": "c",
            "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}],
        },
    }
    return {
        "messages": [turns[kind](said) for kind, said in asked.turns],
        "tools": [*functions, *kinds(asked)],
        "tool_choice": "required" if asked.forced else None,
        "response_format": asked.schema and {"type": "json_schema", "json_schema": {"schema": asked.schema}},
        "stream": asked.stream,
        "max_tokens": asked.most,
    }


def responses(asked: Asked) -> dict[str, Any]:
    functions = [{"type": "function", "name": name, "parameters": given} for name, given in asked.tools]
    turns = {
        "user": lambda text: {"role": "user", "content": text},
        "call": lambda name: {"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"},
        "result": lambda text: {"type": "function_call_output", "call_id": "c", "output": text},
        "picture": lambda data: {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_image", "image_url": f"data:image/png;base64,{data}"}],
        },
    }
    return {
        "input": [turns[kind](said) for kind, said in asked.turns],
        "tools": [*functions, *kinds(asked)],
        "tool_choice": "required" if asked.forced else None,
        "text": asked.schema and {"format": {"type": "json_schema", "name": "a", "schema": asked.schema}},
        "stream": asked.stream,
        "max_output_tokens": asked.most,
    }


def messages(asked: Asked) -> dict[str, Any]:
    def result(content: Any) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]}

    turns = {
        "user": lambda text: {"role": "user", "content": text},
        "call": lambda name: {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": name, "input": {}}],
        },
        "result": result,
        "picture": lambda data: result(
            [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]
        ),
    }
    return {
        "model": "",
        "max_tokens": asked.most,
        "messages": [turns[kind](said) for kind, said in asked.turns],
        "tools": [*({"name": name, "input_schema": given} for name, given in asked.tools), *kinds(asked)],
        "tool_choice": {"type": "any"} if asked.forced else None,
        "output_config": asked.schema and {"format": {"type": "json_schema", "schema": asked.schema}},
        "stream": asked.stream,
    }


def ollama(asked: Asked) -> dict[str, Any]:
    """It has no way to ask for a call."""
    turns = {
        "user": lambda text: {"role": "user", "content": text},
        "call": lambda name: {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": name, "arguments": {}}}],
        },
        "result": lambda text: {"role": "tool", "tool_name": "now", "content": text},
        "picture": lambda data: {"role": "tool", "tool_name": "now", "content": "", "images": [data]},
    }
    return {
        "model": "",
        "messages": [turns[kind](text) for kind, text in asked.turns],
        "tools": chat(asked)["tools"],
        "format": asked.schema,
        "stream": asked.stream,
        "options": {"num_predict": asked.most},
    }


def kinds(asked: Asked) -> list[dict[str, Any]]:
    return [{"type": asked.kind, "name": "z"}] if asked.kind else []


DIALECTS: dict[str, Callable[[Asked], dict[str, Any]]] = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
    "/api/chat": ollama,
}


def nested(depth: int) -> Any:
    return {"type": "array", "items": nested(depth - 1)} if depth else {}


def needs(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


WEATHER = ("weather", SCHEMA)
MEGABYTE = {"enum": [f"{number:0100d}" for number in range(10_000)]}
TOO_MUCH_WORK = LOST_GRAMMAR.partition(" (")[0]
IMPOSSIBLE = "cannot be served at #"
EXPLODING = {"type": "string", "pattern": "^(.{1,500}){1,500}z$"}
HOSTILE: dict[str, tuple[Asked, int, str]] = {
    "a result without a call": (Asked([ASK, ("result", "sun")]), 200, "sun"),
    "a result first": (Asked([("result", "sun")]), 200, "sun"),
    "a call without a result": (Asked([ASK, ("call", "weather"), ASK], [WEATHER]), 200, "weather"),
    "a call of an unknown tool": (Asked([ASK, ("call", "nope"), ("result", "sun")], [WEATHER]), 200, "nope"),
    "a picture as a result": (Asked([ASK, ("call", "weather"), ("picture", PICTURE)]), 400, "reads text only"),
    "a tool without a name": (Asked(tools=[("", SCHEMA)]), 400, "no name"),
    "an unknown kind of tool": (Asked(tools=[WEATHER], kind="teleport"), 400, "'teleport'"),
    "a thousand tools": (Asked(tools=[(f"tool_{number}", SCHEMA) for number in range(1000)]), 200, "tool_999"),
    "a schema of a megabyte": (Asked(schema=MEGABYTE), 200, ""),
    "a schema that is itself": (Asked(schema={"$ref": "#"}), 400, f"{IMPOSSIBLE}: no text holds to it"),
    "a schema without an end": (Asked(schema=needs({"$ref": "#"})), 200, ""),
    "a schema that contradicts itself": (
        Asked(schema={"type": "integer", "minimum": 5, "maximum": 3}),
        400,
        IMPOSSIBLE,
    ),
    "a tool that contradicts itself": (
        Asked(tools=[("a", needs(False))], forced=True),
        400,
        f"'a': The JSON schema {IMPOSSIBLE}",
    ),
    "a schema too deep": (Asked(schema=nested(300)), 400, "recursion limit"),
    "a pattern that explodes": (Asked(schema=EXPLODING), 200, ""),
}


@pytest.fixture(scope="module")
def tooled() -> Iterator[Running]:
    """A server for all requests of this file."""
    made = Running()
    made.engine.speak(QWEN, "said", context=1 << 20)
    yield made
    made.stop()


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("case", HOSTILE)
def test_what_breaks_servers_is_answered_or_refused(case: str, path: str, tooled: Running) -> None:
    asked, status, words = HOSTILE[case]
    if asked.kind and path == "/v1/responses":
        status, words = 200, "weather"  # clients send kinds there that they serve themselves
    if asked.forced and path == "/api/chat":
        status, words = 200, '"required": ["a"]'
    before = len(tooled.engine.seen)
    with tooled.http() as http:
        answer = http.post(path, json=DIALECTS[path](asked))
    assert answer.status_code == status, answer.text[:500]
    if status == 200:
        assert "said" in answer.text
        assert words in tooled.prompt
    else:
        assert is_error(path, answer.json())
        assert words in answer.text
        assert len(tooled.engine.seen) == before


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_a_tool_that_does_not_exist_reaches_the_client(path: str, stream: bool, running: Running) -> None:
    """Who asked knows best what to tell the model of it."""
    running.engine.speak(QWEN, '<tool_call>\n{"name": "nope", "arguments": {"a": "b"}}\n</tool_call>')
    with running.http() as http:
        answer = http.post(path, json=DIALECTS[path](Asked(tools=[WEATHER], stream=stream))).raise_for_status()
    assert '"name":"nope"' in answer.text
    assert '"b' in answer.text.replace("\\", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with the tokens of bytes, whose template knows tools."""
    shape = Shape("tiny", layers=2, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=416, context=4096)
    made = write_folder(gptq_folder(shape, tmp_path_factory.mktemp("models")), "chatml")
    config = json.loads((made / "tokenizer_config.json").read_text())
    (made / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": QWEN}))
    return made


@pytest.fixture
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A server whose arithmetic is the same beside other answers, and that keeps no pages after them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch.set_num_threads(1)
    made = Serving(folder)
    with made.connect() as socket:
        client = Client(socket)
        while made.engine.loaded is None:
            client.receive()
        for key, value in ((keys.BATCH_INVARIANT, True), ("prefix_cache", False)):
            client.send(Set(key=key, value=value))
    yield made
    made.stop()


@pytest.fixture
def http(serving: Serving) -> Iterator[httpx.Client]:
    with serving.http() as client:
        yield client


def told(http: httpx.Client) -> dict[str, Any]:
    """The tokens of an answer with their log-probabilities."""
    body = {"prompt": "abc", "max_tokens": 40, "seed": 5, "logprobs": 2, "ignore_eos": True}
    found: dict[str, Any] = http.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]["logprobs"]
    return found


def leave(http: httpx.Client, path: str) -> None:
    """Go away within the arguments of a call, or in an answer that a schema holds to."""
    endless = needs({"type": "string", "minLength": 3000})
    asked = Asked(tools=[("a", endless)], forced=True, stream=True)
    if path == "/api/chat":
        asked = Asked(schema=endless, stream=True)
    with http.stream("POST", path, json=DIALECTS[path](asked)) as answer:
        assert answer.status_code == 200
        received = 0
        for line in answer.iter_lines():
            received += WITHIN[path] in line
            if received == 9:
                return
    pytest.fail("it ended by itself")


WITHIN = {
    "/v1/chat/completions": '"arguments":"',
    "/v1/responses": '"response.function_call_arguments.delta"',
    "/v1/messages": '"input_json_delta"',
    "/api/chat": '"content":"',
}


@pytest.mark.parametrize("path", DIALECTS)
def test_a_client_that_leaves_within_a_call_leaves_nothing_behind(
    path: str, http: httpx.Client, serving: Serving
) -> None:
    alone = told(http)
    leave(http, path)
    assert told(http) == alone
    assert serving.metrics()['pages{state="used"}'] == 0


@pytest.mark.slow
def test_no_token_of_other_answers_changes(http: httpx.Client, serving: Serving) -> None:
    """All of what breaks servers, and clients that leave, while an answer is written again and again."""
    alone, beside = told(http), 0

    def hostile(path: str, asked: Asked) -> None:
        answer = http.post(path, json=DIALECTS[path](asked._replace(most=30)))
        assert "<state>" not in answer.text, "what the grammar went through"
        # That a text has no end, or a pattern explodes, turns out while the answer is written.
        assert answer.status_code in (200, 400) or (is_error(path, answer.json()) and TOO_MUCH_WORK in answer.text)

    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(hostile, path, each) for path in DIALECTS for each, _, _ in HOSTILE.values()]
        others += [pool.submit(leave, http, path) for path in DIALECTS]
        while not all(other.done() for other in others):
            assert told(http) == alone
            beside += 1
        for other in others:
            other.result()
    assert beside > 2
    assert told(http) == alone

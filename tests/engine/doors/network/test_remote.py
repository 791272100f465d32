"""Models of other servers: a second server of the same kind answers, or one that does not do what it should."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends import fail

from engine import protocol as p
from engine.base import installation
from engine.loop.commands import AddRequest
from engine.protocol.access import AddKey
from engine.protocol.operations import ADD_KEY, ADD_REMOTE, LIST_REMOTE_MODELS, LIST_REMOTES, REMOVE_REMOTE
from engine.services.operations import OperationFailed, perform
from engine.services.remote import answers, servers
from tests.engine.doors.network.conftest import Running
from tests.kit.remote_server import EVENTS, Odd, chunk
from tests.kit.servers import Client

CHAT = [p.ChatMessage.of("user", "abc")]


@pytest.fixture(autouse=True)
def no_keyring() -> None:
    keyring.set_keyring(fail.Keyring())


@pytest.fixture
def far(home: Any) -> Iterator[Running]:
    """The other server."""
    made = Running()
    yield made
    made.stop()


@pytest.fixture
def odd(home: Any) -> Iterator[Callable[..., Odd]]:
    made: list[Odd] = []

    def make(*args: Any, **options: Any) -> Odd:
        made.append(Odd(*args, **options))
        perform(ADD_REMOTE, p.AddRemote(url=made[-1].url, name="far", key="a-secret"))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def add(far: Running) -> str:
    """Make a key of the other server and add that; the key."""
    key = perform(ADD_KEY, AddKey(name="window")).key
    perform(ADD_REMOTE, p.AddRemote(url=far.url, name="far", key=key))
    return key


def ask(client: Client, **more: Any) -> p.Finished | p.Error:
    asked = {"prompt": CHAT, "remote": p.RemoteModel(server="far", model="tiny")} | more
    client.send(p.Generate(id="1", **asked))
    return client.until(p.Finished | p.Error)  # type: ignore[arg-type]


def told(client: Client, channel: str = "content") -> str:
    return "".join(each.text for each in client.passed if isinstance(each, p.Delta) and each.channel == channel)


def test_a_model_elsewhere_answers_where_none_is_loaded(far: Running, empty: Running, open_client: Any) -> None:
    add(far)
    far.engine.cached = 3
    client = open_client(empty)
    ended = ask(client, sampling=p.Sampling(temperature=0.5, top_k=7, seed=11, max_tokens=5))
    assert isinstance(ended, p.Finished)
    command = far.asked[0]
    answer = far.engine.loaded.files.tokenizer.decode(list(reversed(command.prompt_ids))[:5])
    assert told(client) == answer
    assert (command.sampling.temperature, command.sampling.top_k, command.sampling.seed) == (0.5, 7, 11)
    size = len(command.prompt_ids)
    assert ended.usage == p.Usage(prompt_tokens=size, cached_tokens=3, generated_tokens=5, seed=0)
    assert ended.reason == "stop"
    assert not any(isinstance(each, AddRequest) for each in empty.engine.seen)


def test_thinking_is_told_apart(far: Running, client: Client) -> None:
    add(far)
    far.engine.thinks = 2
    ended = ask(client)
    assert isinstance(ended, p.Finished)
    assert told(client, "thinking")
    assert ended.usage.thinking_tokens == 2


def test_calls_of_tools_come_in_parts_and_go_back(far: Running, client: Client) -> None:
    add(far)
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Basel"}}\n</tool_call>'
    far.engine.speak("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}", f"I see. {call}")
    tools = p.ToolConfig(tools=[p.Tool(name="weather", description="Tells it.")])
    assert isinstance(ask(client, tools=tools), p.Finished)
    parts = [call for each in client.passed if isinstance(each, p.Delta) for call in each.calls]
    assert [part.name for part in parts if part.name] == ["weather"]
    assert json.loads("".join(part.arguments for part in parts)) == {"city": "Basel"}
    assert told(client).strip() == "I see."


def test_a_cancelled_answer_ends_there_too(far: Running, client: Client) -> None:
    add(far)
    far.engine.gate.clear()
    client.send(p.Generate(id="1", prompt=CHAT, remote=p.RemoteModel(server="far", model="tiny")))
    wait_for(lambda: any(isinstance(each, AddRequest) for each in far.engine.seen))
    client.send(p.Cancel(id="1"))
    assert client.until(p.Finished).reason == "cancelled"
    wait_for(lambda: bool(far.engine.cancelled))


@pytest.mark.slow
def test_a_gpu_pack_has_the_program_ask(odd: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = b'data: {"usage": {"prompt_tokens": 9, "completion_tokens": 2}}\n\n'
    odd(chunk(reasoning="hm") + chunk(content="from afar") + usage + b"data: [DONE]\n\n", EVENTS)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setattr(installation, "_pack", Path("/a pack"))
    monkeypatch.setattr(answers, "answer", None)  # of this process, which has neither client nor keyring
    ended = ask(client)
    assert isinstance(ended, p.Finished)
    assert (told(client, "thinking"), told(client), ended.usage.prompt_tokens) == ("hm", "from afar", 9)


def test_one_name_is_one_answer(far: Running, client: Client) -> None:
    add(far)
    far.engine.gate.clear()
    asked = p.Generate(id="1", prompt=CHAT, remote=p.RemoteModel(server="far", model="tiny"))
    client.send(asked)
    client.send(asked)
    assert client.until(p.Error).code == "duplicate_id"
    far.engine.gate.set()
    assert client.until(p.Finished).reason == "stop"


def test_everything_that_was_set_is_sent_and_nothing_else(odd: Any, client: Client) -> None:
    server = odd(chunk(content="x") + b"data: [DONE]\n\n", EVENTS)
    picture = b"\x89PNG..."
    prompt = [
        p.ChatMessage.of("system", "be brief"),
        p.ChatMessage.of("user", "what?", pictures=[picture]),
        p.ChatMessage.of("assistant", "", thinking="hm", calls=[p.ToolCall("c1", "look", "{}")]),
        p.ChatMessage(role="tool", parts=[p.ToolResult("c1", "a cat")]),
    ]
    asked = {
        "sampling": p.Sampling(stop=["."], min_p=0.1),
        "thinking": p.Thinking(on=False, effort="low"),
        "tools": p.ToolConfig(tools=[p.Tool(name="look")], choice="required", parallel=False),
        "structured": p.StructuredOutput(kind="json_schema", source='{"type":"object"}'),
    }
    assert isinstance(ask(client, prompt=prompt, **asked), p.Finished)
    assert server.asked[-1][:2] == ("/v1/chat/completions", "Bearer a-secret")
    function = {"name": "look", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert server.asked[-1][2] == {
        "model": "tiny",
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop": ["."],
        "min_p": 0.1,
        "chat_template_kwargs": {"enable_thinking": False},
        "reasoning_effort": "low",
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
        },
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORy4uLg=="}},
                    {"type": "text", "text": "what?"},
                ],
            },
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        ],
    }


@pytest.mark.parametrize(
    ("content", "kind", "status", "says"),
    [
        (b'{"error": {"message": "no key a-secret"}}', "application/json", 401, "does not accept the key: no key …."),
        (b'{"error": "no model m"}', "application/json", 404, "does not know what it was asked for: no model m."),
        (b'{"detail": "busy"}', "application/json", 503, r"HTTP 503\): busy"),
        (b"", "text/plain", 500, r"HTTP 500\): without a word"),
        (b"", "text/plain", 307, r"sends on to another address \(https://elsewhere.example/v1\)"),
        (b"<h1>\x1b[2JHello</h1>", "text/html", 200, "does not stream its answer, but says: <h1>.\\[2JHello"),
        (b"data: {]\n\n", EVENTS, 200, r"no part of an answer: {]"),
        (b'data: {"choices": 7}\n\n', EVENTS, 200, "no part of an answer"),
        (b'data: {"error": {"message": "no memory"}}\n\n', EVENTS, 200, "could not go on: no memory"),
        (b"data: " + b"[" * 100_000 + b"\n\n", EVENTS, 200, "no part of an answer"),
        (chunk(content="x"), EVENTS, 200, "ended the answer in the middle"),
        (b"data: " + b"x" * 5000, EVENTS, 200, "sends without an end"),
    ],
)
def test_what_goes_wrong_there_is_said(
    content: bytes, kind: str, status: int, says: str, odd: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "without an end" in says:
        monkeypatch.setattr(answers, "MOST_LINE", 1000)
    odd(content, kind, status)
    error = ask(client)
    assert isinstance(error, p.Error)
    assert (error.code, error.id) == ("remote_failed", "1")
    assert re.search(says, error.message)
    assert "a-secret" not in error.message
    assert len(error.message) < 600


def test_a_connection_that_breaks_and_a_server_that_is_gone(odd: Any, client: Client) -> None:
    server = odd(chunk(content="so far"), EVENTS, cut=True)
    error = ask(client)
    assert told(client) == "so far"
    assert isinstance(error, p.Error)
    assert "ended the connection early" in error.message
    server.stop()
    error = ask(client)
    assert isinstance(error, p.Error)
    assert "cannot be reached" in error.message


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"remote": p.RemoteModel(server="gone", model="tiny")}, "no server 'gone' any more"),
        ({"prompt": "plain"}, "for chats alone"),
        ({"n": 2}, "gives one answer"),
        ({"adapter": "pirate"}, "without adapters"),
        ({"structured": p.StructuredOutput(kind="regex", source="a")}, "held to JSON alone"),
    ],
)
def test_what_has_no_words_there_is_refused(asked: Any, says: str, odd: Any, client: Client) -> None:
    server = odd(b"")
    error = ask(client, **asked)
    assert isinstance(error, p.Error)
    assert says in error.message
    assert len(server.asked) == 1, "the list of models when it was added"


def test_servers_are_added_listed_asked_and_removed(far: Running, home: Path) -> None:
    key = add(far)
    assert perform(LIST_REMOTES, p.ListRemotes()) == [p.RemoteServer(name="far", url=f"{far.url}/v1")]
    assert perform(LIST_REMOTE_MODELS, p.ListRemoteModels(name="far"))[0].context == 64
    kept = {path.name: path for path in (home / "home").rglob("*") if path.is_file() and key in path.read_text()}
    assert set(kept) == {"hub-tokens.json"}
    assert stat.S_IMODE(kept["hub-tokens.json"].stat().st_mode) & 0o077 == 0 or os.name != "posix"
    with pytest.raises(OperationFailed, match="a server far already"):
        perform(ADD_REMOTE, p.AddRemote(url=far.url, name="far"))
    assert perform(REMOVE_REMOTE, p.RemoveRemote(name="far")) == []
    assert not kept["hub-tokens.json"].exists()
    with pytest.raises(OperationFailed, match="no server 'far' any more"):
        perform(LIST_REMOTE_MODELS, p.ListRemoteModels(name="far"))


def test_a_server_that_does_not_tell_its_models_is_not_added(far: Running) -> None:
    for url, key, says in (
        (far.url, "wrong", "does not accept the key"),
        (f"{far.url}/health", "", "does not accept the key|does not know"),
        ("ftp://x", "", "not the address of a server"),
        ("http://user:secret@x", "", "more than a place"),
        ("", "", "not the address of a server"),
        (far.url, "a\nb", "no key"),
    ):
        with pytest.raises(OperationFailed, match=says):
            perform(ADD_REMOTE, p.AddRemote(url=url, key=key))
    assert perform(LIST_REMOTES, p.ListRemotes()) == []


@pytest.mark.parametrize(
    ("url", "address", "warned"),
    [
        ("https://api.example/v1/", "https://api.example/v1", False),
        ("example.org:8000", "http://example.org:8000/v1", True),
        ("localhost:8000", "http://localhost:8000/v1", False),
        ("http://[::1]:1/v1/chat/completions", "http://[::1]:1/v1", False),
    ],
)
def test_addresses_are_made_whole_and_open_ones_warned_of(
    url: str, address: str, warned: bool, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    async def none(place: Any) -> list[p.OfferedModel]:
        return []

    monkeypatch.setattr(servers, "_models", none)
    added = perform(ADD_REMOTE, p.AddRemote(url=url)).server
    assert added.url == address
    assert bool(added.warning) == warned


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)

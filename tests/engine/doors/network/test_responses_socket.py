"""OpenAI's Responses by a websocket: by OpenAI's own client, and by those who mean no good."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from engine.protocol import MAX_FRAME
from engine.protocol.access import AddKey, RevokeKey
from engine.protocol.operations import ADD_KEY, REVOKE_KEY
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from engine.services.operations import perform
from tests.engine.doors.network.conftest import Running
from tests.engine.text.samples import write_folder
from tests.kit.servers import TOKEN, Serving

Open = Callable[..., ClientConnection]
LONG = {"input": "abc", "max_output_tokens": 50}
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens websockets, which are closed at the end."""
    with ExitStack() as stack:

        def open(running: Running | Serving, key: str = TOKEN, **headers: str) -> ClientConnection:
            given = {"Authorization": f"Bearer {key}", **headers}
            url = f"ws://127.0.0.1:{running.server.port}/v1/responses"
            return stack.enter_context(connect(url, additional_headers=given, max_size=None, compression=None))

        yield open


def send(socket: ClientConnection, **fields: Any) -> None:
    socket.send(json.dumps({"type": "response.create", "store": False, **fields}))


def end(socket: ClientConnection) -> dict[str, Any]:
    """The event that ends an answer."""
    while True:
        event: dict[str, Any] = json.loads(socket.recv(timeout=300))
        if event["type"] in ENDS:
            return event


def asked(socket: ClientConnection, **fields: Any) -> dict[str, Any]:
    send(socket, **fields)
    return end(socket)


def settled(done: Callable[[], bool]) -> None:
    """Wait until what another thread does is done."""
    last = time.monotonic() + 60
    while not done():
        assert time.monotonic() < last
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
def test_openai_s_client_has_a_conversation_on_one_connection(running: Running) -> None:
    running.engine.context = 4096
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key=TOKEN) as api, api.responses.connect() as connection:
        connection.response.create(model="tiny", input="abc", max_output_tokens=5, store=False)
        events: list[Any] = []
        while not events or events[-1].type != "response.completed":
            events.append(connection.recv())
        assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        first = events[-1].response
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert text == first.output_text != ""
        assert not first.store
        connection.response.create(
            model="tiny", input="def", previous_response_id=first.id, max_output_tokens=5, store=False
        )
        while connection.recv().type != "response.completed":
            pass
        assert f"abc<|im_end|>\n<|im_start|>assistant\n{text}" in running.prompt
        connection.response.create(model="tiny", input="def", top_logprobs=99)
        refused: Any = connection.recv()
        assert (refused.type, refused.status, refused.error.param) == ("error", 400, "top_logprobs")
        with pytest.raises(openai.NotFoundError):
            api.responses.retrieve(first.id)


def test_what_a_connection_keeps_for_itself(running: Running, opened: Open) -> None:
    mine, other = opened(running), opened(running)
    kept = asked(mine, **LONG)["response"]["id"]
    stored = asked(mine, **LONG, store=True)["response"]["id"]
    missing = asked(other, input="d", previous_response_id=kept)
    assert (missing["status"], missing["error"]["code"]) == (404, "previous_response_not_found")
    assert asked(other, input="d", previous_response_id=stored)["type"] == "response.completed"
    wrong = {"type": "function_call_output", "call_id": "nope", "output": "sun"}
    for name, after in ((kept, "error"), (stored, "response.completed")):
        refused = asked(mine, input=[wrong], previous_response_id=name)["error"]
        assert (refused["param"], "No tool call found" in refused["message"]) == ("input[0].call_id", True)
        assert asked(mine, input="d", previous_response_id=name)["type"] == after


def test_a_failure_within_an_answer_ends_it_once(running: Running, opened: Open) -> None:
    socket = opened(running)
    first = asked(socket, **LONG)["response"]["id"]
    running.engine.cut = ("error", "The step failed. Ask again.")
    failed = asked(socket, **LONG, previous_response_id=first)
    assert (failed["type"], failed["response"]["error"]["message"]) == (
        "response.failed",
        "The step failed. Ask again.",
    )
    running.engine.cut = None
    assert asked(socket, input="d", previous_response_id=first)["error"]["code"] == "previous_response_not_found"
    assert asked(socket, **LONG)["type"] == "response.completed"


def test_a_prompt_is_read_before_anything_is_asked(running: Running, opened: Open) -> None:
    socket = opened(running)
    running.engine.says_length = True
    warm = asked(socket, input="abc", generate=False)
    assert (warm["type"], warm["response"]["output"]) == ("response.completed", [])
    assert warm["response"]["usage"]["output_tokens"] == 0
    running.engine.says_length = False
    assert asked(socket, input="def", previous_response_id=warm["response"]["id"])["type"] == "response.completed"
    assert "<|im_start|>user\nabc<|im_end|>\n<|im_start|>user\ndef<|im_end|>" in running.prompt


@pytest.mark.parametrize(
    ("frame", "status", "told"),
    [
        ("{", 400, "was not understood"),
        ("[1]", 400, "was not understood"),
        (b"\xff\x00", 400, "was not understood"),
        ("", 400, "was not understood"),
        ('{"input": "abc"}', 400, "`type`"),
        ('{"type": "response.steer"}', 400, "$.type"),
        ('{"type": "response.create", "input": "a", "background": true}', 400, "background"),
        ('{"type": "response.create", "input": "a", "stream_id": "b"}', 400, "stream_id"),
        ('{"type": "response.create", "input": "a", "model": "gpt"}', 404, "gpt"),
        ('{"type": "response.create", "input": ' + '[' * 5000, 400, "was not understood"),
        ('{"type": "response.create", "input": "' + "a" * MAX_FRAME + '"}', 413, "larger than 32 MiB"),
    ],
    ids=["no JSON", "no object", "bytes", "nothing", "no type", "another type", "background", "lane", "model", "deep",
         "large"],
)  # fmt: skip
def test_frames_that_cannot_be_answered(
    frame: str | bytes, status: int, told: str, refusing: Running, opened: Open
) -> None:
    socket = opened(refusing)
    socket.send(frame)
    event = end(socket)
    assert (event["type"], event["status"]) == ("error", status)
    assert told in event["error"]["message"]
    assert set(event["error"]) >= {"type", "code", "message", "param"}
    assert asked(socket, **LONG)["type"] == "response.completed", "the connection stays"


def test_a_frame_without_an_end_is_cut_off(refusing: Running, opened: Open) -> None:
    socket = opened(refusing)
    socket.socket.sendall(b"\x81\xff" + (2 * MAX_FRAME + 1).to_bytes(8) + bytes(4))  # RFC 6455, section 5.2
    with pytest.raises(ConnectionClosedError):
        socket.recv(timeout=300)
    assert socket.close_code == 1009


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "", "Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
    ids=str,
)
def test_who_gets_no_connection(headers: dict[str, str], status: int, refusing: Running, opened: Open) -> None:
    with pytest.raises(InvalidStatus) as refused:
        opened(refusing, **headers)
    assert refused.value.response.status_code == status


def test_one_answer_at_a_time(running: Running, opened: Open) -> None:
    socket = opened(running)
    running.engine.gate.clear()
    for number in range(3):
        send(socket, input=f"n{number}", max_output_tokens=5)
    busy = end(socket)
    assert (busy["status"], busy["error"]["code"]) == (429, "rate_limit_exceeded")
    running.engine.gate.set()
    kinds: list[str] = []
    while kinds.count("response.completed") < 2:
        kinds.append(json.loads(socket.recv(timeout=300))["type"])
    begun, ended = (
        [at for at, kind in enumerate(kinds) if kind == f"response.{name}"] for name in ("created", "completed")
    )
    assert begun[0] < ended[0] < begun[1] < ended[1]
    assert "n1" in running.prompt


def test_who_goes_away_leaves_nothing_behind(running: Running, opened: Open) -> None:
    socket = opened(running)
    running.engine.gate.clear()
    send(socket, **LONG)
    while json.loads(socket.recv(timeout=300))["type"] != "response.in_progress":
        pass
    socket.close()
    settled(lambda: bool(running.engine.cancelled))
    running.engine.gate.set()


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A random model that keeps its pages."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch.set_num_threads(1)
    shape = Shape("tiny", layers=2, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=416, context=2048)
    made = Serving(write_folder(gptq_folder(shape, tmp_path), "chatml"))
    settled(lambda: made.engine.loaded is not None)
    yield made
    made.stop()


def test_a_real_model_reads_a_prompt_early_writes_summaries_and_is_left(serving: Serving, opened: Open) -> None:
    socket = opened(serving)
    warm = asked(socket, input="say " * 20, generate=False)["response"]
    assert (warm["status"], warm["output"], warm["usage"]["output_tokens"]) == ("completed", [], 0)
    answer = asked(socket, input="a", previous_response_id=warm["id"], max_output_tokens=20)["response"]
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] > 30
    assert 0 < answer["usage"]["output_tokens"] <= 20
    with serving.openai() as api:
        body = {"max_output_tokens": 12, "ignore_eos": True}
        made = api.responses.compact(model=serving.engine.loaded.card.name, input="abc", extra_body=body)
        assert made.usage.output_tokens == 12
    after = asked(
        socket,
        input=[*(item.to_dict(warnings=False) for item in made.output), {"role": "user", "content": "a"}],
        max_output_tokens=5,
    )
    assert after["response"]["usage"]["input_tokens"] > 30
    send(socket, input="abc", max_output_tokens=1800, ignore_eos=True)
    while json.loads(socket.recv(timeout=300))["type"] != "response.output_text.delta":
        pass
    socket.close()
    settled(lambda: serving.metrics()['requests{state="running"}'] == 0)


def test_keys_and_the_log_are_those_of_http(home: object, opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "engine.doors.access")
    slow, few = (perform(ADD_KEY, AddKey(name=name, rate=2, concurrent=1)).key for name in ("slow", "few"))
    made = Running(logs=True)
    try:
        sockets = [opened(made, slow), opened(made, slow), opened(made, few)]
        made.engine.gate.clear()
        send(sockets[0], input="secret words", max_output_tokens=3)
        assert json.loads(sockets[0].recv(timeout=300))["type"] == "response.created"
        at_once = asked(sockets[1], **LONG)
        made.engine.gate.set()
        assert end(sockets[0])["type"] == "response.completed"
        results = [asked(sockets[2], **LONG, id=1)["error"]["code"] for _ in range(3)]
        perform(REVOKE_KEY, RevokeKey(name="slow"))
        revoked = asked(sockets[0], **LONG)
    finally:
        made.stop()
    assert (at_once["status"], at_once["error"]["message"].partition(" may ")[0]) == (429, "The key slow")
    assert results == ["invalid_value", "invalid_value", "rate_limit_exceeded"]
    assert (revoked["status"], revoked["error"]["code"]) == (401, "invalid_api_key")
    lines = [each.message for each in caplog.records if each.name == "engine.doors.access"]
    told = [
        tuple(dict(part.split("=", 1) for part in line.split(" "))[name] for name in ("key", "status"))
        for line in lines
    ]
    wanted = [("slow", "429"), ("slow", "200"), *[("few", "400")] * 2, ("few", "429"), ("-", "401")]
    assert told == wanted
    assert "generated_tokens=3" in lines[1]
    assert "method=POST path=/v1/responses" in lines[1]
    written = [each.getMessage() for each in caplog.records if each.name.startswith("engine.")]
    assert not any(word in line for line in written for word in ("secret", "words", slow, few))

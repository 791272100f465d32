from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from engine import protocol as p
from engine.doors.serve import SLACK
from engine.loading.model import LoadModel
from engine.protocol import Cancel, Set
from engine.text.template import ChatTemplate
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import TOKEN, Client

CHAT = [p.ChatMessage.of("user", "abc")]


def answer_of(client: Client, id: str) -> tuple[str, p.Finished]:
    text = ""
    while True:
        message = client.receive()
        if isinstance(message, p.Delta) and message.id == id:
            text += message.text
            assert sum(token.chars for token in message.tokens) == len(message.text)
        elif isinstance(message, p.Finished) and message.id == id:
            return text, message


def backwards(running: Running, text: str) -> str:
    """What the fake engine answers to a plain text."""
    tokenizer = running.engine.loaded.files.tokenizer
    return tokenizer.decode(tokenizer.encode(text)[::-1])


def test_welcome(client: Client, home: Path) -> None:
    welcome = client.welcome
    assert isinstance(welcome, p.Welcome)
    assert welcome.protocol == p.PROTOCOL
    assert welcome.device.name == "fake"
    assert welcome.loaded is not None
    assert welcome.catalogue[0].key == "kv_cache"
    tiny = next(model for model in welcome.models if model.name == "tiny")
    assert tiny.draft == str(home / "models" / "tiny-draft")
    assert not any(model.name == "tiny-draft" for model in welcome.models)


@pytest.mark.parametrize(
    ("hello", "code", "says"),
    [
        (p.Hello(token="wrong", protocol=p.PROTOCOL), "wrong_token", "token is wrong"),
        (p.Hello(token="", protocol=p.PROTOCOL), "wrong_token", "token is wrong"),
        (p.Hello(token="\u00fc", protocol=p.PROTOCOL), "wrong_token", "token is wrong"),
        (p.Hello(token=TOKEN, protocol=p.PROTOCOL + 1), "protocol_mismatch", "Update the engine"),
        (p.Hello(token=TOKEN, protocol=p.PROTOCOL - 1), "protocol_mismatch", "Update the window"),
        (p.Unload(), "no_hello", "no greeting"),
        ('{"type": "hello", "new": ' + "[" * 60_000, "no_hello", "no greeting"),
        ("{" * 60_000, "no_hello", "no greeting"),
        ("x" * 1_000_000, "no_hello", "no greeting"),
        (b"\x00\xff", "no_hello", "no greeting"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_who_does_not_greet_properly_is_told_and_left(refusing: Running, hello: Any, code: str, says: str) -> None:
    with refusing.connect() as socket:
        socket.send(p.encode(hello) if isinstance(hello, p.Message) else hello)
        error = p.decode_from_engine(socket.recv(timeout=300))
        assert isinstance(error, p.Error)
        assert error.code == code
        assert says in error.message
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=300)
    assert refusing.engine.seen == []


def test_generate_streams_and_finishes(client: Client, running: Running) -> None:
    client.send(p.Generate(id="g1", prompt=CHAT, sampling=p.Sampling(max_tokens=5), optimisations={"kv_cache": True}))
    prefill = client.until(p.Prefill)
    assert (prefill.id, prefill.done) == ("g1", prefill.total)
    text, finished = answer_of(client, "g1")
    command = running.asked[0]
    tokenizer = running.engine.loaded.files.tokenizer
    assert list(command.prompt_ids) == tokenizer.encode(
        "<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n", special=False
    )
    assert text == tokenizer.decode(list(reversed(command.prompt_ids))[:5])
    assert finished.reason == "stop"
    assert finished.usage.generated_tokens == 5
    assert command.optimisations == {"kv_cache": True}
    assert not command.continues


def test_plain_text_is_continued(client: Client, running: Running) -> None:
    client.send(p.Generate(id="g1", prompt="abc"))
    answer_of(client, "g1")
    command = running.asked[0]
    assert command.continues
    assert list(command.prompt_ids) == running.engine.loaded.files.tokenizer.encode("abc")


def test_several_answers(client: Client) -> None:
    client.send(p.Generate(id="g", prompt="abc", n=2))
    ends = [client.until(p.Finished), client.until(p.Finished)]
    assert [end.answer for end in ends] == [0, 1]


def test_cancel(client: Client, running: Running) -> None:
    running.engine.gate.clear()
    client.send(p.Generate(id="g", prompt="a long enough text"))
    client.until(p.Prefill)
    client.send(p.Cancel(id="g"))
    client.send(p.CountTokens(id="c", prompt="x"))
    client.until(p.Counted)  # the cancellation was read before this
    running.engine.gate.set()
    assert client.until(p.Finished).reason == "cancelled"


def test_a_cancel_may_overtake_its_request(client: Client, running: Running) -> None:
    running.engine.gate.clear()  # no answer ends of itself before its cancellation comes
    for message in (p.Generate(id="g", prompt=CHAT), p.Cancel(id="g"), p.CountTokens(id="c", prompt="x")):
        client.send(message)
    got = [client.receive()]
    while not isinstance(got[-1], p.Counted):
        got.append(client.receive())
    running.engine.gate.set()
    ended = [message for message in got if isinstance(message, p.Finished)] or [client.until(p.Finished)]
    assert [end.reason for end in ended] == ["cancelled"]
    client.send(p.Generate(id="g", prompt=CHAT))
    assert client.until(p.Finished).reason == "stop"


def test_names_are_refused_while_in_use_and_free_afterwards(client: Client, running: Running) -> None:
    running.engine.gate.clear()
    client.send(p.Generate(id="g", prompt="abc"))
    client.until(p.Prefill)
    client.send(p.Generate(id="g", prompt="abc"))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("duplicate_id", "g")
    running.engine.gate.set()
    client.until(p.Finished)
    client.send(p.Generate(id="g", prompt="abc"))
    client.until(p.Finished)


def test_two_clients_may_use_the_same_names(running: Running, open_client: Any) -> None:
    one, two = open_client(running), open_client(running)
    one.send(p.Generate(id="g", prompt="abc"))
    two.send(p.Generate(id="g", prompt="xyz"))
    assert answer_of(one, "g")[0] == backwards(running, "abc")
    assert answer_of(two, "g")[0] == backwards(running, "xyz")
    one.socket.close()
    two.socket.close()


def test_a_closed_session_cancels_its_requests(running: Running, open_client: Any) -> None:
    running.engine.gate.clear()
    client = open_client(running)
    client.send(p.Generate(id="g", prompt="abcdef"))
    client.until(p.Prefill)
    client.socket.close()
    other = open_client(running)
    for _ in range(200):
        if running.engine.cancelled:
            break
        other.send(p.CountTokens(id="c", prompt="x"))
        other.until(p.Counted)
    running.engine.gate.set()
    assert len(running.engine.cancelled) == 1
    other.send(p.Generate(id="g", prompt="ab"))
    assert answer_of(other, "g")[0] == backwards(running, "ab")
    other.socket.close()


def test_the_engines_refusal_reaches_its_request(client: Client) -> None:
    client.send(p.Generate(id="g", prompt="z" * 200))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("prompt_too_long", "g")
    client.send(p.Generate(id="g", prompt="abc"))  # its name is free again
    client.until(p.Finished)


def test_a_template_that_refuses(client: Client, running: Running) -> None:
    from engine.text.template import ChatTemplate

    running.engine.loaded.files.template = ChatTemplate("{{ raise_exception('No.') }}")
    client.send(p.Generate(id="g", prompt=CHAT))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("bad_prompt", "g")
    assert "refused the conversation: No." in error.message


def test_without_a_model(empty: Running, open_client: Any) -> None:
    client = open_client(empty)
    assert client.welcome.loaded is None
    for message in (
        p.Generate(id="g", prompt="x"),
        p.CountTokens(id="g", prompt="x"),
        p.Compare(id="g", key="kv_cache", prompt="x"),
    ):
        client.send(message)
        error = client.until(p.Error)
        assert (error.code, error.id) == ("no_model", "g")
    client.socket.close()


def test_load_by_name_and_by_path(empty: Running, open_client: Any, home: Path) -> None:
    client = open_client(empty)
    tiny = home / "models" / "tiny"
    client.send(p.Load(model="tiny"))
    assert client.until(p.Loaded).card.path == str(tiny)
    assert isinstance(client.passed[0], p.Loading)
    client.send(p.Load(model=str(tiny), draft="", options=p.LoadOptions(context=32)))
    client.until(p.Loaded)
    client.send(p.Load(model="tiny", draft="tiny-draft"))
    client.until(p.Loaded)
    loads = [c for c in empty.engine.seen if isinstance(c, LoadModel)]
    draft = str(home / "models" / "tiny-draft")
    assert [(c.path, c.draft, c.options.context) for c in loads] == [
        (str(tiny), draft, None),
        (str(tiny), "", 32),
        (str(tiny), draft, None),
    ]
    client.send(p.Unload())
    assert client.until(p.Unloaded).reason == "asked to"
    client.socket.close()


@pytest.mark.parametrize("model", ["nothing", "../models/tiny", "tiny/..", "~", "/nonexistent/folder", "models"])
def test_models_that_do_not_exist(refusing: Running, open_client: Any, model: str) -> None:
    client = open_client(refusing)
    client.send(p.Load(model=model if model != "~" else "~nobody/x"))
    error = client.until(p.Error)
    assert error.code == "model_not_found"
    assert "Give the full path" in error.message
    assert not any(isinstance(c, LoadModel) for c in refusing.engine.seen)


def test_a_failed_load_is_told_to_all(running: Running, open_client: Any, client: Client) -> None:
    other = open_client(running)
    client.send(p.Load(model="broken"))
    assert client.until(p.Error).message == "The file is damaged. Download it again."
    assert other.until(p.Error).code == "bad_model"
    other.socket.close()


def test_set_is_told_to_all(running: Running, open_client: Any, client: Client) -> None:
    other = open_client(running)
    client.send(p.Set(key="token_budget", value=64))
    for listener in (client, other):
        specs = listener.until(p.Options).catalogue
        assert next(spec.value for spec in specs if spec.key == "token_budget") == 64
    client.send(p.Set(key="token_budget", value=1))
    assert "lies between" in client.until(p.Error).message
    client.send(p.Set(key="unknown", value=1))
    assert "no optimisation called" in client.until(p.Error).message
    other.socket.close()


def test_count_and_estimate(client: Client, running: Running) -> None:
    client.send(p.CountTokens(id="c", prompt=CHAT))
    counted = client.until(p.Counted)
    text = running.engine.loaded.files.template.render(CHAT)
    assert counted.tokens == len(running.engine.loaded.files.tokenizer.encode(text, special=False))
    client.send(p.Estimate(id="e", model="tiny"))
    estimated = client.until(p.Estimated)
    assert (estimated.id, estimated.fits, estimated.sentence) == ("e", True, "Fits packed.")
    client.send(p.Estimate(id="e", model="huge"))
    assert not client.until(p.Estimated).fits
    client.send(p.Estimate(id="e2", model="none of these"))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("model_not_found", "e2")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "malformed"),
        ("{", "malformed"),
        ("[]", "malformed"),
        ("null", "malformed"),
        ('{"type": 5}', "malformed"),
        ('{"id": "x"}', "unknown_message"),
        ('{"type": "dance", "id": "x"}', "unknown_message"),
        ('{"type": "generate", "id": "x"}', "malformed"),
        ('{"type": "generate", "id": "x", "prompt": [{"role": "king", "content": ""}]}', "malformed"),
        ('{"type": "set", "key": "kv_cache", "value": null}', "malformed"),
        ('{"type": "cancel", "id": "x", "new": ' + "[" * 200_000, "malformed"),
        ('{"type": "set", "key": "kv_cache", "value": ' + '{"a":' * 200_000, "malformed"),
        (b"\xff\xfe", "malformed"),
        (json.dumps({"type": "cancel", "id": "\ud800"}), "malformed"),
    ],
)
def test_bad_frames_get_an_error_and_the_connection_stays(client: Client, frame: str | bytes, code: str) -> None:
    client.socket.send(frame)
    error = client.receive()
    assert isinstance(error, p.Error)
    assert error.code == code
    assert error.message.count(". ") == 1
    client.send(p.Generate(id="g", prompt="abc"))
    assert client.until(p.Finished).reason == "stop"


def test_unknown_fields_are_ignored(client: Client) -> None:
    client.socket.send('{"type": "generate", "id": "g", "prompt": "abc", "new": [1], "sampling": {"future": true}}')
    assert client.until(p.Finished).id == "g"


def test_an_oversized_frame_is_said_and_loses_nothing(client: Client) -> None:
    prompt = "é" * (p.MAX_FRAME // 2)  # the limit is one of bytes, and not of characters
    client.socket.send(json.dumps({"type": "generate", "id": "g", "prompt": prompt}, ensure_ascii=False))
    error = client.until(p.Error, timeout=300)
    assert (error.code, error.id) == ("too_large", "g")
    client.send(p.Generate(id="g", prompt="abc"))
    assert client.until(p.Finished).reason == "stop"


def test_a_frame_of_any_size_costs_its_sender_the_connection_and_nobody_else(
    client: Client, running: Running, open_client: Any
) -> None:
    hostile = open_client(running)
    with contextlib.suppress(ConnectionClosed):
        hostile.socket.send("x" * (SLACK * p.MAX_FRAME + 1))
    with pytest.raises(ConnectionClosed):
        hostile.receive()
    client.send(p.Generate(id="g", prompt="abc"))
    assert client.until(p.Finished).reason == "stop"


def test_telemetry_comes_at_most_ten_times_a_second(client: Client) -> None:
    client.send(p.Generate(id="g", prompt="abcdef"))
    client.until(p.Finished)
    client.send(p.Subscribe(topics=["telemetry"], rate=1e9))
    frames = [client.until(p.Telemetry) for _ in range(3)]
    times = [frame.time for frame in frames]
    assert all(later - before > 0.08 for before, later in itertools.pairwise(times))
    assert frames[0].pages.total == 10
    assert frames[0].queue.running == 0
    assert frames[0].generated_per_second > 0
    assert frames[0].memory.weights == 1000
    client.send(p.Subscribe(topics=[]))
    client.send(p.CountTokens(id="last", prompt="x"))
    client.until(p.Counted)
    with pytest.raises(TimeoutError):
        client.receive(timeout=0.3)


def test_an_engine_at_rest_sends_nothing_until_something_begins(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.services.hub.REST_SECONDS", 3600.0)
    client.send(p.Subscribe(topics=["telemetry", "pages"]))
    for _ in range(2):
        client.receive()
    with pytest.raises(TimeoutError):
        client.receive(timeout=0.5)
    client.send(p.Generate(id="g", prompt="abcdef"))
    client.until(p.Telemetry)
    while not client.until(p.Telemetry).generated_per_second:
        pass


def test_a_load_gives_bandwidth_for_the_share(client: Client, running: Running) -> None:
    client.send(p.Load(model="tiny"))
    client.until(p.Loaded)
    client.send(p.Generate(id="g", prompt="abcdef"))
    client.until(p.Finished)
    client.send(p.Subscribe(topics=["telemetry"]))
    for _ in range(50):
        frame = client.until(p.Telemetry)
        if frame.bandwidth_share is not None or frame.bytes_per_token is None:
            break
    assert frame.bandwidth_share == pytest.approx(1000 / 0.01 / 1e6)


def test_the_engines_death_stops_the_server(home: Path) -> None:
    running = Running()
    running.engine.fail_step = True
    with running.connect() as socket:
        client = Client(socket)
        client.send(p.Generate(id="g", prompt="abc"))
        with pytest.raises(ConnectionClosed):
            client.until(p.Finished)
    running.thread.join(300)
    assert running.server.exit_code == 1


def test_set_reaches_the_engine_as_it_came(client: Client, running: Running) -> None:
    client.send(p.Set(key="chunked_prefill", value=False))
    client.until(p.Options)
    assert Set(key="chunked_prefill", value=False) in running.engine.seen
    assert not any(isinstance(c, Cancel) for c in running.engine.seen)


@pytest.mark.slow
def test_a_reader_that_stops_reading_gets_all_text_in_the_end(
    client: Client, running: Running, open_client: Any
) -> None:
    running.engine.flood = 20_000
    client.send(p.Generate(id="g", prompt="ab"))
    other = open_client(running)
    other.send(p.Generate(id="h", prompt="xy"))  # queued behind the flood: it is over when this answers
    count = 0
    while not isinstance(other.receive(timeout=300), p.Finished):
        count += 1
    text, frames = "", 0
    while not isinstance(message := client.receive(timeout=300), p.Finished):
        if isinstance(message, p.Delta):
            text += message.text
            frames += 1
    flooded = [int(part) for part in text.split(".")[:20_000]]
    assert flooded == list(range(20_000))
    assert text.endswith(backwards(running, "ab"))
    assert frames < 20_000


def test_thinking_comes_in_its_own_channel_and_is_asked_for(client: Client, running: Running) -> None:
    loaded = running.engine.loaded
    loaded.files.template = ChatTemplate("{{ enable_thinking }}|{{ messages[0].content }}")
    running.engine.thinks = 4
    said = [p.ChatMessage.of("user", "abc def")]
    client.send(p.Generate(id="a", prompt=said, thinking=p.Thinking(on=False)))
    end = client.until(p.Finished)
    deltas = [message for message in client.passed if isinstance(message, p.Delta)]
    request = running.engine.seen[-1]
    assert loaded.files.tokenizer.decode(list(request.prompt_ids)) == "False|abc def"
    tokens = {c: sum(len(d.tokens) for d in deltas if d.channel == c) for c in ("thinking", "content")}
    assert tokens["thinking"] == end.usage.thinking_tokens == 4
    assert sum(tokens.values()) == end.usage.generated_tokens
    assert "".join(
        d.text for d in sorted(deltas, key=lambda d: d.channel, reverse=True)
    ) == loaded.files.tokenizer.decode(list(request.prompt_ids)[::-1])
    client.send(p.CountTokens(id="n", prompt=said, thinking=p.Thinking(on=False)))
    assert client.until(p.Counted).tokens == len(request.prompt_ids)
    modes = p.ThinkingModes(kind="always", efforts=["low", "high"])
    loaded.card = msgspec.structs.replace(loaded.card, thinking=modes)
    client.send(p.Generate(id="b", prompt=said, thinking=p.Thinking(effort="most")))
    error = client.until(p.Error)
    assert (error.id, error.code) == ("b", "bad_effort")
    assert "Use low or high." in error.message

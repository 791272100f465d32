"""The cache over the wire: maps while they change, pages that are asked about, costs, and chats that are forgotten."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import pytest

from engine import protocol as p
from engine.loop.commands import MeasureText
from engine.protocol import PAGE_STATES, ForgetChat
from engine.services import hub
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import Client

PROMPT = "The cache keeps keys and values, so that every new token costs one row of work."


def filled(client: Client, id: str = "one", chat: str = "c1", prompt: str = PROMPT) -> None:
    client.send(p.Generate(id=id, prompt=prompt, chat=chat, sampling=p.Sampling(max_tokens=1)))
    client.until(p.Finished)


def states(message: p.PageMap) -> list[str]:
    return [PAGE_STATES[byte] for byte in zlib.decompress(message.states)]


def test_maps_come_when_they_change(client: Client, running: Running) -> None:
    client.send(p.Subscribe(topics=["pages", "tree"], rate=10))
    first = client.until(p.PageMap)
    assert states(first) == ["free"] * 6
    assert first.swapped == 2
    assert client.until(p.RadixTree).nodes == []
    time.sleep(0.35)
    assert len(running.engine.inspected) == 2, "nothing changed, so nothing was asked of the engine"
    filled(client)
    shown = [message for message in client.passed if isinstance(message, p.PageMap)]
    shown = shown or [client.until(p.PageMap)]
    assert states(shown[-1]).count("private") == -(-len(running.engine.loaded.files.tokenizer.encode(PROMPT)) // 16)
    assert shown[-1].legend == [p.PageOwner(chat="c1", id="one")], "by the client's own name of it"
    tree = client.until(p.RadixTree)
    assert tree.nodes[0].chat == "c1"
    assert tree.nodes[0].text
    assert PROMPT.startswith(tree.nodes[0].text)


def test_only_what_was_subscribed_to(client: Client, running: Running) -> None:
    client.send(p.Subscribe(topics=["tree"], rate=10))
    client.until(p.RadixTree)
    filled(client)
    client.until(p.RadixTree)
    assert {command.kind for command in running.engine.inspected} == {"tree"}
    client.send(p.Subscribe(topics=[]))
    filled(client, "two")
    time.sleep(0.3)
    client.send(p.CountTokens(id="c", prompt="x"))
    client.until(p.Counted)
    assert not any(isinstance(message, p.RadixTree) for message in client.passed)


def test_a_model_that_goes_leaves_an_empty_map(client: Client) -> None:
    client.send(p.Subscribe(topics=["pages", "tree"], rate=10))
    client.until(p.PageMap)
    client.send(p.Unload())
    empty = client.until(p.PageMap)
    assert (empty.total, states(empty)) == (0, [])


def test_a_busy_engine_only_delays_the_maps(client: Client, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "INSPECT_SECONDS", 0.05)
    running.engine.silent = True
    client.send(p.Subscribe(topics=["pages"], rate=10))
    client.send(p.DescribePage(id="d", page=0))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("busy", "d")
    running.engine.silent = False
    assert states(client.until(p.PageMap)) == ["free"] * 6


def test_a_page_is_described(client: Client, running: Running) -> None:
    filled(client)
    client.send(p.DescribePage(id="d", page=1))
    found = client.until(p.PageDescribed)
    ids = running.engine.loaded.files.tokenizer.encode(PROMPT)[16:32]
    assert (found.id, found.page, found.state, found.chats) == ("d", 1, "private", ["c1"])
    assert (found.first, found.last) == (16, 15 + len(ids))
    assert found.text == running.engine.loaded.files.tokenizer.decode(ids)
    client.send(p.DescribePage(id="free", page=5))
    assert client.until(p.PageDescribed).state == "free"
    for page in (-1, 6, 10**9):
        client.send(p.DescribePage(id="bad", page=page))
        assert client.until(p.Error).code == "bad_page"


def test_the_cost_of_a_text_and_of_a_conversation(client: Client, running: Running) -> None:
    def measured() -> list[int]:
        command = next(c for c in reversed(running.engine.seen) if isinstance(c, MeasureText))
        return list(command.token_ids)

    client.send(p.MeasureCost(id="m", prompt=PROMPT))
    cost = client.until(p.Cost)
    assert cost == p.Cost(id="m", tokens=3, exact=2.0, present=2.5, divergence=0.25, setting="int4", same_top=0.5)
    tokenizer = running.engine.loaded.files.tokenizer
    assert measured() == tokenizer.encode(PROMPT, special=False), "a rendered text has its own begin-of-text"
    client.send(p.MeasureCost(id="m", prompt="", chat="c1"))
    error = client.until(p.Error)
    assert error.code == "unknown_chat"
    assert error.message == "This chat has no answer from the model since it was loaded. Ask something, then measure."
    filled(client)
    client.send(p.MeasureCost(id="m", prompt="", chat="c1"))
    client.until(p.Cost)
    ids = tokenizer.encode(PROMPT)
    assert measured() == [*ids, ids[-1]], "the prompt, and the token that the fake answered"
    running.engine.scores = "That cannot be scored. Try another."
    client.send(p.MeasureCost(id="m", prompt=PROMPT))
    error = client.until(p.Error)
    assert (error.code, error.message) == ("cost_failed", "That cannot be scored. Try another.")


def test_a_chat_is_forgotten(client: Client, running: Running) -> None:
    filled(client)
    client.send(p.ForgetChat(chat="c1"))
    client.send(p.MeasureCost(id="m", prompt="", chat="c1"))
    assert client.until(p.Error).code == "unknown_chat"
    until = time.monotonic() + 300  # the engine hears of it in a thread of its own
    while ForgetChat(chat="c1") not in running.engine.seen and time.monotonic() < until:
        time.sleep(0.01)
    assert ForgetChat(chat="c1") in running.engine.seen


def test_nothing_is_described_or_measured_without_a_model(empty: Running, open_client: Callable) -> None:
    client = open_client(empty)
    for message in (p.DescribePage(id="x", page=0), p.MeasureCost(id="x", prompt="abc")):
        client.send(message)
        assert client.until(p.Error).code == "no_model"


def test_where_a_prompt_diverges_is_told(client: Client, running: Running) -> None:
    asked = [p.ChatMessage.of("user", "a page")]
    client.send(p.Generate(id="one", prompt=asked, sampling=p.Sampling(max_tokens=2)))
    assert client.until(p.Prefill).diverged is None
    client.until(p.Finished)
    text = "".join(message.text for message in client.passed if isinstance(message, p.Delta))
    then = p.ChatMessage.of("user", "b")
    client.send(p.Generate(id="all", prompt=asked))  # the fake repeats the marks of the prompt
    client.until(p.Finished)
    whole = "".join(message.text for message in client.passed if isinstance(message, p.Delta))
    told = ((text, "one", ""), ("edited", "one", "was changed"), (whole, "all", "marks without text"))
    for said, parent, why in told:
        prompt = [*asked, p.ChatMessage.of("assistant", said), then]
        client.send(p.Generate(id="next", prompt=prompt, parent=parent))
        prefill = client.until(p.Prefill)
        assert (prefill.diverged is None) == (not why)
        assert why in prefill.divergence
        client.until(p.Finished)


def test_telemetry_has_the_counters(client: Client, running: Running) -> None:
    running.engine.stats = p.CacheStats(looked_up=100, hit=60, evicted_pages=3, kind="int4", bits_per_element=4.5)
    client.send(p.Subscribe(topics=["telemetry"], rate=10))
    assert client.until(p.Telemetry).cache == running.engine.stats

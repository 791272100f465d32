from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from engine import catalogue
from engine import protocol as p
from engine.catalogue import replay
from engine.core.commands import AddRequest, CancelRequest, SetOption
from engine.server.compare import GROUPED, Measured, first_difference, summary
from tests.engine.server.conftest import Client, Running


def compare(client: Client, **fields: Any) -> Any:
    client.send(p.Compare(id="c", prompt="abcdef ghijkl", **fields))
    return client.until(p.Compared)


def requests(running: Running) -> list[AddRequest]:
    return [c for c in running.engine.seen if isinstance(c, AddRequest)]


def test_a_request_switch_is_interleaved_and_gives_a_ratio(client: Client, running: Running) -> None:
    compared = compare(client, key="kv_cache", rounds=2)
    assert compared.values == [False, True]
    assert [run.value for run in compared.runs] == [False, True, False, True]
    assert (compared.before, compared.after) == (10.0, 20.0)
    assert compared.same
    assert compared.ratio == 2.0
    assert compared.first_difference is None
    assert compared.near_tie is None
    progress = [m for m in client.passed if isinstance(m, p.CompareProgress)]
    assert [m.done for m in progress][-1] == progress[-1].total == 6
    sent = requests(running)
    assert [c.optimisations["kv_cache"] for c in sent] == [False, True, False, True, False, True]
    assert len({c.sampling.seed for c in sent}) == 1
    assert sent[0].sampling.seed is not None
    assert not any(isinstance(c, SetOption) for c in running.engine.seen)
    # The warm-up's length holds for all runs.
    assert {c.sampling.max_tokens for c in sent[1:]} == {compared.runs[0].tokens}


def test_unlike_answers_are_never_compared(client: Client, running: Running) -> None:
    running.engine.break_at = 3
    compared = compare(client, key="kv_cache", rounds=1)
    assert not compared.same
    assert compared.ratio is None
    assert compared.first_difference == 3
    assert (compared.before, compared.after) == (10.0, 20.0)


def test_an_engine_switch_is_set_between_runs_and_put_back(client: Client, running: Running) -> None:
    compared = compare(client, key="token_budget", rounds=2)
    assert [run.value for run in compared.runs] == [64, 512, 64, 512]
    assert running.engine.values["token_budget"] == 512
    client.send(p.Set(key="token_budget", value=100))
    client.until(p.Options)
    compare(client, key="token_budget", rounds=1, values=[64, 128])
    client.send(p.CountTokens(id="x", prompt="x"))
    client.until(p.Counted)
    assert [c.value for c in running.engine.seen if isinstance(c, SetOption)][-3:] == [64, 128, 100] or (
        running.engine.values["token_budget"] == 100
    )


def test_a_reload_is_done_once_each_way(client: Client, running: Running) -> None:
    compared = compare(client, key="weights", rounds=2)
    assert [run.value for run in compared.runs] == ["16bit", "16bit", "packed", "packed"]
    assert GROUPED in compared.note
    assert [c.value for c in running.engine.seen if isinstance(c, SetOption)] == ["16bit", "packed"]


def test_a_seed_that_was_given_is_kept(client: Client, running: Running) -> None:
    compare(client, key="kv_cache", rounds=1, sampling=p.Sampling(seed=11, max_tokens=2))
    assert {c.sampling.seed for c in requests(running)} == {11}
    assert {c.sampling.max_tokens for c in requests(running)} == {2}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"key": "nothing"}, "bad_option"),
        ({"key": "kv_cache", "values": [True]}, "bad_option"),
        ({"key": "kv_cache", "values": [True, True]}, "bad_option"),
        ({"key": "token_budget", "values": [1, 2]}, "bad_option"),
    ],
)
def test_refusals(client: Client, fields: dict[str, Any], code: str) -> None:
    client.send(p.Compare(id="c", prompt="abc", **fields))
    error = client.until(p.Error)
    assert (error.code, error.id) == (code, "c")


def test_a_refused_value_ends_it_and_is_said(client: Client, running: Running) -> None:
    client.send(p.Compare(id="c", key="speculation", prompt="abc", values=["off", "draft"]))
    client.until(p.Compared)  # request scope: the fake engine does not look
    client.send(p.Compare(id="d", key="kv_cache", prompt="z" * 200))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("prompt_too_long", "d")


def test_cancel(client: Client, running: Running) -> None:
    running.engine.gate.clear()
    client.send(p.Compare(id="c", key="token_budget", prompt="abcdef"))
    while not requests(running):
        client.send(p.CountTokens(id="x", prompt="x"))
        client.until(p.Counted)
    client.send(p.Cancel(id="c"))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("cancelled", "c")
    running.engine.gate.set()
    client.send(p.Generate(id="g", prompt="abc"))
    client.until(p.Finished)
    assert any(isinstance(c, CancelRequest) for c in running.engine.seen)
    assert running.engine.values["token_budget"] == 512


def test_first_difference() -> None:
    assert first_difference([[1, 2], [1, 2]]) is None
    assert first_difference([[1, 2], [1, 3], [1, 2]]) == 1
    assert first_difference([[1, 2], [1, 2, 3]]) == 2
    assert first_difference([[]]) is None


def test_medians_and_types() -> None:
    def run(value: p.Value, speed: float) -> Measured:
        return Measured(p.Run(value=value, tokens_per_second=speed, ttft_ms=speed, tokens=1, tokens_per_step=1), [1])

    runs = [run(0, 1), run(4, 5), run(0, 3), run(4, 50), run(0, 2), run(4, 6)]
    compared = summary("c", "draft_length", [0, 4], runs)
    assert (compared.before, compared.after, compared.ratio) == (2, 6, 3)
    assert (compared.ttft_before, compared.ttft_after) == (2, 6)


def test_a_replayed_prompt_is_read_anew(client: Client, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the prefix cache is a switch, it is off while others are measured, and both ways for itself."""
    reuse = dataclasses.replace(catalogue.BY_KEY["kv_cache"], key="prefix_cache", conflicts=())
    options = {**catalogue.BY_KEY, "prefix_cache": reuse}
    monkeypatch.setattr(catalogue, "BY_KEY", options)
    monkeypatch.setattr(catalogue, "CATALOGUE", tuple(options.values()))
    monkeypatch.setattr(replay, "BY_KEY", options)
    running.engine.values["prefix_cache"] = True
    compare(client, key="kv_cache", rounds=1)
    assert [c.optimisations["prefix_cache"] for c in requests(running)] == [False] * 4
    running.engine.seen.clear()
    compare(client, key="token_budget", rounds=1)
    assert [c.optimisations for c in requests(running)] == [{"prefix_cache": False}] * 4
    running.engine.seen.clear()
    compare(client, key="prefix_cache", rounds=1)
    assert [c.optimisations["prefix_cache"] for c in requests(running)] == [False, True, False, True]

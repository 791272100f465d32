from __future__ import annotations

import itertools
from typing import Any

import pytest

from engine import catalogue
from engine import protocol as p
from engine.decoding.telemetry import pairs
from engine.loop.commands import AddRequest
from engine.protocol import Cancel, Set
from engine.services.answers import compare as comparing
from engine.services.answers.compare import CHANCE, NOT_FOUND, MeasuredRun, first_difference, summary
from tests.engine.doors.network.conftest import Running
from tests.kit.servers import Client
from tests.kit.tool_scripts import QWEN


def compare(client: Client, **fields: Any) -> Any:
    client.send(p.Compare(id="c", **{"prompt": "abcdef ghijkl", **fields}))
    return client.until(p.Compared)


def test_a_request_switch_is_interleaved_and_gives_a_ratio(client: Client, running: Running) -> None:
    compared = compare(client, key="kv_cache", rounds=2)
    assert compared.values == [False, True]
    assert [run.value for run in compared.runs] == [False, True, False, True]  # whatever their order was
    assert (compared.before, compared.after) == (10.0, 20.0)
    assert compared.same
    assert compared.ratio == 2.0
    assert compared.first_difference is None
    assert compared.near_tie is None
    progress = [m for m in client.passed if isinstance(m, p.CompareProgress)]
    assert [m.done for m in progress][-1] == progress[-1].total == 6
    sent = running.asked
    ways = [c.optimisations["kv_cache"] for c in sent]
    assert all({ways[i], ways[i + 1]} == {False, True} for i in range(0, 6, 2))
    assert len({c.sampling.seed for c in sent}) == 1
    assert sent[0].sampling.seed is not None
    assert not any(isinstance(c, Set) for c in running.engine.seen)
    # The warm-up's length holds for all runs.
    assert {c.sampling.max_tokens for c in sent[1:]} == {compared.runs[0].tokens}


def test_each_pair_begins_with_the_side_that_was_drawn(
    client: Client, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([(1, 0), (0, 1), (1, 0)])
    monkeypatch.setattr(comparing.random, "sample", lambda sides, count: next(drawn))
    compare(client, key="kv_cache", rounds=3)
    ways = [command.optimisations["kv_cache"] for command in running.asked]
    assert ways[2:] == [True, False, False, True, True, False]


def test_fewer_rounds_than_none_are_as_many_as_it_takes(client: Client, running: Running) -> None:
    assert len(compare(client, key="kv_cache", rounds=-1).runs) >= 2 * pairs.LEAST


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
    assert [c.value for c in running.engine.seen if isinstance(c, Set)][-3:] == [64, 128, 100] or (
        running.engine.values["token_budget"] == 100
    )


def test_reloads_are_taken_in_pairs_too(client: Client, running: Running) -> None:
    compared = compare(client, key="weights", rounds=2)
    assert [run.value for run in compared.runs] == ["16bit", "packed", "16bit", "packed"]
    assert running.engine.values["weights"] == "packed"
    order = [command for command in running.engine.seen if isinstance(command, AddRequest | Set)]
    for before, after in itertools.pairwise(order):
        if isinstance(before, Set) and after is not order[-1]:
            assert isinstance(after, AddRequest)
            assert after.sampling.max_tokens == comparing.RELOADED_TOKENS, "a model just loaded is warmed up"


def test_a_seed_that_was_given_is_kept(client: Client, running: Running) -> None:
    compare(client, key="kv_cache", rounds=1, sampling=p.Sampling(seed=11, max_tokens=2))
    assert {c.sampling.seed for c in running.asked} == {11}
    assert {c.sampling.max_tokens for c in running.asked} == {2}


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
    while not running.asked:
        client.send(p.CountTokens(id="x", prompt="x"))
        client.until(p.Counted)
    client.send(p.Cancel(id="c"))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("cancelled", "c")
    running.engine.gate.set()
    client.send(p.Generate(id="g", prompt="abc"))
    client.until(p.Finished)
    assert any(isinstance(c, Cancel) for c in running.engine.seen)
    assert running.engine.values["token_budget"] == 512


def test_first_difference() -> None:
    assert first_difference([[1, 2], [1, 2]]) is None
    assert first_difference([[1, 2], [1, 3], [1, 2]]) == 1
    assert first_difference([[1, 2], [1, 2, 3]]) == 2
    assert first_difference([[]]) is None


def measured(value: p.Value, speed: float, ids: tuple[int, ...] = (1,), **figures: Any) -> MeasuredRun:
    fields = {"tokens_per_second": speed, "ttft_ms": speed, "tokens": 1, "tokens_per_step": speed / 2, **figures}
    return MeasuredRun(p.Run(value=value, **fields), list(ids), f"text {ids}")


def test_medians_and_types() -> None:
    runs = [(measured(0, 1), measured(4, 5)), (measured(0, 3), measured(4, 50)), (measured(0, 2), measured(4, 6))]
    compared = summary("c", catalogue.option("draft_length"), [0, 4], runs)
    assert (compared.before, compared.after, compared.ratio) == (2, 6, 3)
    assert [run.value for run in compared.runs] == [0, 4] * 3


def test_the_switchs_own_figure_comes_first_each_with_its_own_verdict() -> None:
    runs = [(measured(0, 10 + i), measured(4, 2 * (10 + i))) for i in range(8)]
    own, speed, first = summary("c", catalogue.option("draft_length"), [0, 4], runs).effects
    assert [effect.metric.figure for effect in (own, speed, first)] == [
        "tokens_per_step",
        "tokens_per_second",
        "ttft_ms",
    ]
    assert [effect.verdict for effect in (own, speed, first)] == ["better", "better", "worse"]
    assert (own.ratio, first.ratio) == (2.0, 0.5)
    assert (own.before, own.after, own.pairs) == (6.75, 13.5, 8)


def test_a_choice_may_have_its_own_figure() -> None:
    runs = [(measured("keep_all", 5, read_bytes_per_token=8.0), measured("quest", 5, read_bytes_per_token=4.0))] * 8
    effects = summary("c", catalogue.option("page_policy"), ["keep_all", "quest"], runs).effects
    assert (effects[0].metric.figure, effects[0].ratio, effects[0].verdict) == ("read_bytes_per_token", 2.0, "better")


def test_what_is_counted_needs_one_pair_and_what_is_timed_needs_more() -> None:
    runs = [(measured("16bit", 5, kv_bytes_per_token=8.0), measured("int8", 9, kv_bytes_per_token=4.0))]
    effects = summary("c", catalogue.option("kv_kind"), ["16bit", "int8"], runs).effects
    assert [effect.verdict for effect in effects] == ["better", "few", "few"]


def test_texts_of_unlike_answers_come_along(client: Client, running: Running) -> None:
    running.engine.break_at = 3
    compared = compare(client, key="kv_cache", rounds=1)
    off, on = compared.texts
    assert off != on
    assert off.startswith(on[:2])
    assert [effect.metric.figure for effect in compared.effects] == ["tokens_per_second", "ttft_ms"]
    running.engine.break_at = None
    assert compare(client, key="kv_cache", rounds=1).texts == []


def test_tools_are_in_the_prompt_as_they_were_for_the_answer(client: Client, running: Running) -> None:
    running.engine.speak(QWEN, '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    tools = p.ToolConfig(tools=[p.Tool(name="now", description="Tells it.")])
    called = p.ChatMessage.of("assistant", "", calls=[p.ToolCall("c1", "now", "{}")])
    told = p.ChatMessage(role="tool", parts=[p.ToolResult("c1", "late", "now")])
    chat = [p.ChatMessage.of("user", "abc"), called, told]
    client.send(p.Generate(id="g", prompt=chat, tools=tools))
    client.until(p.Finished)
    compared = compare(client, key="kv_cache", rounds=1, prompt=chat, tools=tools)
    answer, *runs = running.asked
    assert "Tells it." in running.engine.loaded.files.tokenizer.decode(answer.prompt_ids)
    assert len(runs) == 2 + len(compared.runs)
    assert all((run.prompt_ids, run.tools) == (answer.prompt_ids, tools) for run in runs)


def test_calls_stand_behind_the_text_of_an_answer() -> None:
    begun = p.ToolCallDelta(index=0, id="c1", name="now", arguments='{"in":')
    deltas = [
        p.Delta(id="c", text="Let me see."),
        p.Delta(id="c", text="", channel="tool", calls=[begun]),
        p.Delta(id="c", text="", channel="tool", calls=[p.ToolCallDelta(index=0, arguments='"Basel"}')]),
    ]
    assert comparing.text_of(deltas) == 'Let me see.\nnow {"in":"Basel"}'
    assert comparing.text_of(deltas[1:]) == 'now {"in":"Basel"}'


def test_it_runs_until_the_difference_is_clear(client: Client, running: Running) -> None:
    compared = compare(client, key="kv_cache")
    assert len(compared.runs) == 2 * pairs.LEAST
    assert (compared.effects[0].verdict, compared.effects[0].ratio) == ("better", 2.0)
    assert compared.effects[1].verdict == "none"


def test_noise_brings_more_rounds_up_to_a_limit(
    client: Client, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A speed that goes up and down whatever the setting: all rounds, and no verdict."""

    class Noisy(dict[bool, float]):
        times = 0

        def __missing__(self, _: bool) -> float:
            self.times += 1
            return 10.0 + 5 * (self.times * 7 % 5)

    running.engine.speed = Noisy()
    monkeypatch.setattr(comparing.random, "sample", lambda sides, _: sides)
    compared = compare(client, key="kv_cache")
    assert len(compared.runs) == 2 * pairs.MOST
    assert compared.effects[0].verdict == "none"
    progress = [m for m in client.passed if isinstance(m, p.CompareProgress)]
    assert all(m.done <= m.total for m in progress)
    monkeypatch.setattr(comparing, "SECONDS", -1.0)
    assert len(compare(client, key="kv_cache").runs) == 2 * pairs.LEAST
    monkeypatch.setattr(comparing, "MOST_SECONDS", -1.0)
    compared = compare(client, key="kv_cache")
    assert len(compared.runs) == 2
    assert compared.effects[0].verdict == "few"


def test_other_programs_are_named(client: Client, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    share = 0.63
    monkeypatch.setattr(comparing.OtherPrograms, "share", lambda self: share)
    assert "other programs took 63\u00a0% of its processor" in compare(client, key="kv_cache", rounds=1).note
    share = 0.1
    assert "busy" not in compare(client, key="kv_cache", rounds=1).note


def test_what_one_answer_cannot_show_is_refused_with_the_place_that_can(client: Client, running: Running) -> None:
    client.send(p.Compare(id="c", key="admission", prompt="abc"))
    error = client.until(p.Error)
    assert (error.code, error.id) == ("bad_option", "c")
    assert "kvasir bench --scheduling" in error.message
    assert running.asked == []


def test_every_switch_has_a_figure_or_says_where_it_is_measured() -> None:
    fields = set(p.Run.__struct_fields__)
    for option in catalogue.BY_KEY.values():
        metrics = [option.metric_of(value) for value in [option.default, *(c.key for c in option.choices)]]
        for metric in metrics:
            assert (metric.figure in fields) != bool(metric.elsewhere), option.key
            assert bool(metric.title) == bool(metric.figure)


def test_reuse_is_measured_with_the_prompt_in_the_cache(client: Client, running: Running) -> None:
    assert NOT_FOUND in compare(client, key="prefix_cache", rounds=1).note
    running.engine.cached = 16
    compared = compare(client, key="prefix_cache", rounds=1)
    assert NOT_FOUND not in compared.note
    assert compared.effects[0].metric.figure == "ttft_ms"
    assert compared.runs[1].cached_tokens == 16


def test_an_approximation_that_changed_nothing_says_so(client: Client, running: Running) -> None:
    assert CHANCE in compare(client, key="acceptance", rounds=1, values=["keyed", "typical"]).note


def test_a_replayed_prompt_is_read_anew(client: Client, running: Running) -> None:
    """The prefix cache is off while other switches are measured, and both ways for itself."""
    compare(client, key="kv_cache", rounds=1)
    assert [c.optimisations["prefix_cache"] for c in running.asked] == [False] * 4
    running.engine.seen.clear()
    compare(client, key="token_budget", rounds=1)
    assert [c.optimisations for c in running.asked] == [{"prefix_cache": False}] * 4
    running.engine.seen.clear()
    compare(client, key="prefix_cache", rounds=1)
    assert sorted(c.optimisations["prefix_cache"] for c in running.asked) == [False, False, True, True]


def test_an_answer_that_is_cut_for_time_says_so(
    client: Client, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.engine.says_length = True
    assert "Measured over" not in compare(client, key="kv_cache", rounds=1, sampling=p.Sampling(max_tokens=5)).note
    monkeypatch.setattr(comparing, "LEAST_TOKENS", 3)
    monkeypatch.setattr(comparing, "RUN_SECONDS", 0.3)
    compared = compare(client, key="kv_cache", rounds=1)
    assert {run.tokens for run in compared.runs} == {3}
    assert "Measured over the first 3 tokens of the answer." in compared.note

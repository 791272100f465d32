"""``kvasir bench --cache``: the traces, what is counted of them, and that no run profits from another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from engine import catalogue
from engine.bench import cache as cache_bench
from engine.bench.cache import PARTS, measure_cache
from engine.bench.client import Answer
from engine.bench.folders import gptq_folder
from engine.bench.run import Report, run
from engine.bench.shapes import Shape
from engine.bench.traces import TRACES, Words, chats, document, shared_prompt
from engine.catalogue import BY_KEY, replay
from engine.protocol import Sampling, Timings, Usage, Value
from tests.engine.server.fake import step

VOCABULARY = range(10, 500)


@pytest.mark.parametrize("context", [256, 2048, 8192])
@pytest.mark.parametrize("make", TRACES)
def test_every_request_fits_the_context(make, context: int) -> None:
    for seed in range(5):
        trace = make(Words(VOCABULARY, seed, 1), context)
        lengths = [len(opening) for opening in trace.openings]
        for wave in trace.waves:
            for ask in wave:
                assert ask.tokens
                if trace.grows:
                    lengths[ask.thread] += len(ask.tokens) + trace.answer
                else:
                    assert lengths[ask.thread] + len(ask.tokens) + trace.answer < context
        assert max(lengths) < context


def test_runs_differ_in_their_texts_and_not_in_their_lengths() -> None:
    for make in TRACES:
        one, same, other = (make(Words(VOCABULARY, 1, run), 2048) for run in (1, 1, 2))
        assert one == same
        assert one.openings[0][:32] != other.openings[0][:32]
        assert [[len(ask.tokens) for ask in wave] for wave in one.waves] == [
            [len(ask.tokens) for ask in wave] for wave in other.waves
        ]


def test_what_the_traces_share() -> None:
    words = Words(VOCABULARY, 1, 1)
    users = shared_prompt(words, 4096)
    assert len(users.openings) == users.requests == 12
    assert all(opening == users.openings[0] for opening in users.openings)
    assert len(users.openings[0]) == 512
    about = document(words, 8192)
    assert (len(about.openings[0]), about.requests, about.grows) == (4000, 4, False)
    talks = chats(words, 4096)
    assert (talks.requests, talks.grows) == (15, True)
    assert len({tuple(opening[:16]) for opening in talks.openings}) == 3


class PrefixClient:
    """Answers with the last token again and remembers, where it may, which beginnings it has read."""

    def __init__(self) -> None:
        self.seen: list[Sequence[int]] = []
        self.values: dict[str, Value] = catalogue.defaults()
        self.asked: list[Mapping[str, Value]] = []
        card = SimpleNamespace(name="fake", context=2048, vocabulary=500)
        self.engine: Any = SimpleNamespace(
            loaded=SimpleNamespace(card=card, tokenizer=None, kv_bytes_per_token=10.0),
            catalogue_state=lambda: [
                spec
                for spec in catalogue.state(self.values, {"model"})
                if spec.key in ("prefix_cache", "page_reservation", "token_budget")
            ],
        )

    def set(self, key: str, value: Value) -> None:
        self.values[key] = value

    def together(self, prompts, sampling: Sampling, overrides: Mapping[str, Value]) -> list[Answer]:
        self.asked.append(dict(overrides))
        answers = []
        for prompt in prompts:
            found = max((common(prompt, text) for text in self.seen), default=0) if overrides["prefix_cache"] else 0
            ids = [prompt[-1]] * sampling.max_tokens
            usage = Usage(len(prompt), found, len(ids), 0)
            first = 1.0 + len(prompt) - found
            timings = Timings(0, first, first, 1, 1, 1)
            steps = [step(0.0, pages_used=4, live_tokens=48), step(0.0, pages_used=6, live_tokens=80)]
            answers.append(Answer(ids, timings, steps, [], usage))
        if overrides["prefix_cache"]:
            self.seen += [[*prompt, *answer.ids] for prompt, answer in zip(prompts, answers, strict=True)]
        return answers


def common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.fixture
def with_reuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue with the prefix cache in it, whether or not it has one of its own."""
    reuse = dataclasses.replace(catalogue.BY_KEY["kv_cache"], key="prefix_cache", title="Prefix reuse", conflicts=())
    options = {**catalogue.BY_KEY, "prefix_cache": catalogue.BY_KEY.get("prefix_cache", reuse)}
    for module in (catalogue, replay, cache_bench):
        monkeypatch.setattr(module, "BY_KEY", options)
    monkeypatch.setattr(catalogue, "CATALOGUE", tuple(options.values()))


@pytest.mark.usefixtures("with_reuse")
def test_parts_are_measured_both_ways_and_find_only_their_own_text() -> None:
    client = PrefixClient()
    figures = measure_cache(client, rounds=3)  # type: ignore[arg-type]
    assert [trace.name for trace in figures.traces] == ["chats", "shared prompt", "document"]
    for trace in figures.traces:
        reuse, reservation = trace.rows
        assert (reuse.part, reuse.before.value, reuse.after.value) == ("prefix_cache", False, True)
        assert reuse.before.hit_rate == reuse.before.saved == 0
        assert reuse.after.hit_rate > 0.5
        assert reuse.after.saved == pytest.approx(reuse.after.hit_rate * trace.prompt_tokens, rel=0.01)
        assert reuse.ratio > 2
        assert reuse.same is True
        assert reuse.before.waste == pytest.approx(1 - 128 / 160)
        assert (reuse.before.pages, reuse.before.bytes) == (6, 6 * 16 * 10)
        # With the reuse on both ways, either side finds what belongs to its own run and nothing of the other's.
        assert reservation.part == "page_reservation"
        for side in (reservation.before, reservation.after):
            assert side.hit_rate == pytest.approx(reuse.after.hit_rate, abs=0.01)
        assert reservation.same is None
        assert 0 < trace.reserved_waste < 1
    assert client.values == catalogue.defaults()
    fraction = figures.traces[2].rows[0].after.hit_rate
    assert fraction == pytest.approx(0.75, abs=0.02), "three of four questions find the document"


@pytest.mark.usefixtures("with_reuse")
def test_what_the_engine_refuses_is_left_out_with_its_words() -> None:
    class Refusing(PrefixClient):
        def together(self, prompts, sampling, overrides):
            if self.values["page_reservation"] == "whole_context":
                raise cache_bench.EngineError("No room for that.")
            return super().together(prompts, sampling, overrides)

    client = Refusing()
    figures = measure_cache(client, rounds=1)  # type: ignore[arg-type]
    assert [[row.part for row in trace.rows] for trace in figures.traces] == [["prefix_cache"]] * 3
    assert figures.absent[0] == "Page reservation on chats: No room for that."
    assert client.values == catalogue.defaults()


def test_the_report_of_a_tiny_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine itself, with whatever of the parts its catalogue has."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shape = Shape("tiny", layers=1, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=504, context=256)
    file = tmp_path / "figures.json"
    model = gptq_folder(shape, tmp_path)
    threads = torch.get_num_threads()
    report = run(switches=False, shapes=[], cache=True, rounds=1, threads=threads, model=model, json_file=file)
    figures = report.cache
    assert figures is not None
    assert figures.absent == []
    parts = [row.part for row in figures.traces[0].rows]
    assert "page_reservation" in parts
    assert set(parts) <= {part for part in PARTS if part in BY_KEY}
    for trace in figures.traces:
        for row in trace.rows:
            assert min(row.before.ttft_median, row.after.ttft_median, row.ratio) > 0
            assert row.after.ttft_p95 >= row.after.ttft_median
            assert 0 <= row.after.waste < 1
            assert row.after.pages > 0
        reuse = [row for row in trace.rows if row.part == "prefix_cache"]
        assert all(row.after.hit_rate > 0.3 > row.before.hit_rate == 0 for row in reuse)
        reservation = next(row for row in trace.rows if row.part == "page_reservation")
        assert reservation.before.waste > reservation.after.waste
    assert msgspec.json.decode(file.read_bytes(), type=Report).cache == figures
    shown = " ".join(capsys.readouterr().out.split())
    assert "chats of five turns: 15 requests" in shown

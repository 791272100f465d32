"""``kvasir bench --speculation``: who takes turns with whom, rows of real steps, and that a change of text shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engine.catalogue import BY_KEY, defaults, state
from engine.protocol import OptionSpec, Sampling, Value
from engine.services.client import Answer, EngineClient
from engine.services.experiments.bench import BenchOptions, Report, run
from engine.services.experiments.measures import speculation, switches
from engine.services.experiments.measures.speculation import AHEAD, measure_speculation, ways
from engine.services.experiments.measures.switches import _drafter, drafters
from engine.services.experiments.measures.verify import measure_verify
from engine.services.experiments.workloads import texts as speculation_texts
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from engine.services.experiments.workloads.texts import Prompt, Text, texts
from engine.text.grammar import Grammar
from tests.engine.loop.toy_engine import toy_model

TINY = Shape("tiny", layers=2, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=504, context=512)


def specification(*missing: str) -> OptionSpec:
    heads = {"medusa heads", "eagle head", "mtp layers", "assistant"}
    capabilities: Any = {"model", "draft model", "several layers", *heads}
    return next(spec for spec in state(defaults(), capabilities - set(missing)) if spec.key == "speculation")


def test_everyone_who_drafts_is_measured_and_the_rest_is_named() -> None:
    found, absent = ways(specification("eagle head"), ["ngram", "draft", "exit", "medusa"])
    assert [way.name for way in found] == ["ngram"] * 2 + ["draft"] * 2 + ["exit"] * 2 + ["medusa"] * 2 + ["auto"]
    assert [way.switches.get("draft_length") for way in found] == [AHEAD, 0] * 4 + [None]
    assert [bool(way.ahead) for way in found] == [True, False] * 4 + [False]
    assert all(way.switches["ngram_first"] is False for way in found[:-1])
    assert [line.split(":")[0] for line in absent] == ["EAGLE head"]


class ToyClient(EngineClient):
    """The toy engine in the thread of a client; ``asked`` is what each answer was told of speculation."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.changed = 0
        super().__init__()
        self.engine.install(toy_model(limit=256))

    def answer(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        optimisations: Mapping[str, Value] | None = None,
        chat: str = "",
        grammar: Grammar | None = None,
    ) -> Answer:
        answer = super().answer(prompt_ids, sampling, optimisations, chat, grammar)
        told = dict(optimisations or {})
        self.asked.append(f"{told['speculation']} {told.get('draft_length', '')}".strip())
        if self.changed and told["speculation"] == "draft":
            return answer._replace(ids=[*answer.ids[:-1], 1 - answer.ids[-1]])
        return answer


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyClient]:
    sampling = Sampling(temperature=0.0, max_tokens=24, ignore_eos=True, seed=1)
    prompts = [Prompt([1, 2, 3, 4, 5, 6, 7 + number], sampling) for number in range(2)]
    short = Prompt([3, 4], msgspec.structs.replace(sampling, max_tokens=3))
    made = [
        Text("code", "code that goes on", prompts),
        Text("talk", "free talk", [prompts[0], short]),
        Text("none", "nothing said", [short]),
    ]
    monkeypatch.setattr(speculation, "texts", lambda model, tokens: made)
    with ToyClient() as client:
        yield client


@pytest.mark.slow
def test_plain_and_drafting_take_turns(toy: ToyClient) -> None:
    client = toy
    figures = measure_speculation(client, 2)
    assert [text.title for text in figures.texts] == ["code that goes on", "free talk"]
    assert [text.prompts for text in figures.texts] == [2, 1]
    assert "free talk: 1 of 2 prompts are answered in fewer than 6 tokens" in figures.absent
    assert "nothing said: 1 of 1 prompts are answered in fewer than 6 tokens" in figures.absent
    told = [way.switches for way in ways(specification("several layers"), ["ngram", "draft"])[0]]
    names = ["off", *(f"{each['speculation']} {each.get('draft_length', '')}".strip() for each in told)]
    # Each prompt once to see whether it is answered; then a warm-up and two rounds of all.
    assert client.asked[:5] == ["off"] * 5
    for number in range(3):
        written = client.asked[5:][number * 3 * len(names) : (number + 1) * 3 * len(names)]
        assert sorted(written[::3]) == sorted(names)
        assert all(len({*written[at : at + 3]}) == 1 for at in range(0, len(written), 3))


@pytest.mark.slow
def test_rows_hold_what_was_measured(toy: ToyClient) -> None:
    client = toy
    figures = measure_speculation(client, 1)
    for text in figures.texts:
        rows = {row.title: row for row in text.rows}
        assert list(rows)[-1] == "auto"
        fixed = rows[f"draft model, {AHEAD} ahead"]
        assert len(fixed.accepted) == AHEAD
        assert fixed.accepted == sorted(fixed.accepted, reverse=True)
        assert 0 < fixed.acceptance < 1, "the toy draft is right at times"
        assert 1 < fixed.tokens_per_step <= AHEAD + 1
        assert fixed.draft_pass > 0
        assert fixed.passes == AHEAD
        assert fixed.verify_step > 0
        assert fixed.verify_rows == AHEAD + 1
        assert fixed.predicted is not None
        assert fixed.predicted > 0
        assert fixed.speedup.pairs == text.prompts == fixed.answers == fixed.exact_answers
        assert rows[f"n-gram lookup, {AHEAD} ahead"].draft_pass == 0, "it costs no pass"
        assert all(row.equal == row.answers and row.exact == row.exact_answers for row in text.rows)
        assert all(min(row.speed, row.plain, row.speedup.median) > 0 for row in text.rows)
    assert [row.batch for row in figures.overhead] == [1, 8]
    assert all(min(row.speed, row.plain) > 0 and row.ratio.pairs == 4 for row in figures.overhead)
    least = min(figures.texts, key=lambda text: max(text.rows[0].speedup.median, text.rows[2].speedup.median))
    assert {row.text for row in figures.overhead} == {least.title}
    assert figures.verify == [], "the toy has no layers to be timed by themselves"


@pytest.mark.slow
def test_a_change_of_text_is_said_aloud(
    toy: ToyClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = toy
    client.changed = 1
    figures = measure_speculation(client, 1)
    text = figures.texts[0]
    assert [row.exact for row in text.rows] == [2, 2, 0, 0, 2]
    assert any("CHANGED" in line and "draft model, 4 ahead on free talk" in line for line in figures.equality())
    monkeypatch.setattr("engine.services.experiments.reports.tables.PAGE", 200)
    figures.show()
    assert "DIFFERS in 2 of 2" in capsys.readouterr().out


@pytest.mark.long
def test_the_report_of_the_bundled_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, with one prompt of each kind."""
    monkeypatch.setattr(speculation_texts, "_CODE", speculation_texts._CODE[:1])
    monkeypatch.setattr(speculation_texts, "_AGAIN", speculation_texts._AGAIN[:1])
    monkeypatch.setattr(speculation_texts, "_LINES", ())
    monkeypatch.setattr(speculation_texts, "_ABOUT_KVASIR", speculation_texts._ABOUT_KVASIR[:1])
    file = tmp_path / "figures.json"
    threads = torch.get_num_threads()
    report = run(BenchOptions(switches=False, shapes=[], speculation=True, rounds=1, threads=threads, tokens=24), file)
    figures = report.speculation
    assert figures is not None
    assert [text.key for text in figures.texts] == ["code", "edit", "talk", "noise"]
    assert {"n-gram lookup, 4 ahead", "draft model, 4 ahead", "auto"} <= {row.title for row in figures.texts[0].rows}
    assert all(row.exact == row.exact_answers > 0 for text in figures.texts for row in text.rows)
    talk = {row.title: row for row in figures.texts[2].rows}
    assert talk["draft model, 4 ahead"].tokens_per_step > 3, "the draft knows these answers as well"
    assert {row.batch for row in figures.verify} == {1, 8}
    assert all((row.ratio == 1) == (row.rows == 1) for row in figures.verify)
    assert msgspec.json.decode(file.read_bytes(), type=Report) == report
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    for words in ("code that goes on: 1 prompts", "the model's forward by rows"):
        assert words in out


def test_another_model_is_asked_what_people_ask(tmp_path: Path) -> None:
    """Without a chat template too; its checking is timed by rows."""
    with EngineClient() as client:
        client.load(str(gptq_folder(TINY, tmp_path)))
        made = texts(client.model, 40)
        verify = measure_verify(client.model, 1, rows=(1, 3), batches=(2,))
    assert [text.key for text in made] == ["code", "edit", "talk", "noise"]
    assert [len(text.prompts) for text in made] == [3, 3, 4, 2]
    assert [{prompt.sampling.max_tokens for prompt in text.prompts} for text in made] == [{80}, {40}, {40}, {40}]
    assert all(prompt.ids for text in made for prompt in text.prompts)
    assert [(row.batch, row.rows) for row in verify] == [(2, 1), (2, 3)]
    assert all(row.ms > 0 and row.ratio > 0 for row in verify)


def test_switches_that_say_how_to_draft_are_shown_by_somebody_who_does() -> None:
    """In the summary of all switches: the first kind of drafting that the model has, or none."""
    assert set(drafters()) == {
        option.key for option in BY_KEY.values() if option.measure.compare and option.relevant.of[0] == "speculation"
    }
    assert _drafter("draft_length", specification()) == "draft"
    assert _drafter("draft_length", specification("draft model")) == "assistant"
    assert _drafter("draft_length", specification("draft model", "assistant")) == "ngram"
    assert _drafter("tree_nodes", specification("eagle head")) == "medusa"
    assert _drafter("tree_nodes", specification("eagle head", "medusa heads")) == ""


def test_what_nobody_shows_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {key: BY_KEY[key] for key in ("ngram_chats", "draft_length", "tree_nodes")}
    monkeypatch.setattr(switches, "BY_KEY", some)
    with ToyClient() as client:
        rows, absent = switches.measure_switches(client, [[1, 2, 3, 4, 5]], [1] * 40, tokens=16, rounds=1)
        asked = client.asked
    assert [row.key for row in rows] == ["ngram_chats", "draft_length"]
    assert [line.split(":")[0] for line in absent] == ["Draft tree size"]
    assert {line.split()[0] for line in asked} == {"ngram", "draft"}

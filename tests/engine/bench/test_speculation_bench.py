"""``kvasir bench --speculation``: what is made of steps, who takes turns with whom, and that a change of text shows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console

from engine.bench import speculation, speculation_assisted, speculation_texts
from engine.bench.client import Answer, EngineClient
from engine.bench.folders import gptq_folder
from engine.bench.run import Report, run
from engine.bench.shapes import Shape
from engine.bench.speculation import AHEAD, measure_speculation, ways
from engine.bench.speculation_assisted import dequantised, measure_assisted
from engine.bench.speculation_conclusions import conclusions, pays
from engine.bench.speculation_figures import OverheadRow, SpeculationFigures, Spread, TextFigures, WayRow
from engine.bench.speculation_steps import Costs, Guessed, Watch, costs, decoding, held, predicted, spread
from engine.bench.speculation_tables import show_speculation
from engine.bench.speculation_texts import Prompt, Text, texts
from engine.bench.speculation_verify import measure_verify
from engine.catalogue import defaults, state
from engine.checkpoints.load import Checkpoint, load_model
from engine.config import bundled_model
from engine.core.events import GuessRecord, StepRecord
from engine.core.runner import SequenceRows
from engine.core.runners import new_runner
from engine.protocol import OptionSpec, Sampling, Value
from engine.speculation.autolength import expected_tokens
from engine.speculation.base import Work
from engine.speculation.ngram import NgramProposer
from tests.engine.core.toy_engine import toy_model
from tests.gpu import bench_speculation as on_gpu

TINY = Shape("tiny", layers=2, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=504, context=512)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def guessed(
    depth: int, kept: int, cost: float = 1.0, draft: float = 0.0, passes: int = 0, name: str = "draft"
) -> Guessed:
    return Guessed(cost, draft, passes, 1 + depth, 1 + kept, ((name, depth, kept),) if depth else ())


def record(time: float, prefill: int = 0, guess: GuessRecord | None = None, duration: float = 0.5) -> StepRecord:
    guesses = () if guess is None else (guess,)
    verified = 0 if guess is None else len(guess.proposed)
    return StepRecord(
        time, duration, 0.1, int(not prefill), prefill, verified, 1, guesses, 9, 1, 1, 0, 0, 1, 0, 0, 0, ()
    )  # fmt: skip


def test_shares_by_depth_count_what_was_reached() -> None:
    """Of three chains of three one fails at once, one at its last guess, one holds whole."""
    judged = held([guessed(3, 0), guessed(3, 2), guessed(3, 3), guessed(0, 0)])
    assert judged.proposed == [3, 3, 3]
    assert judged.accepted == [2, 2, 1]
    assert judged.reached == 1 + 3 + 3
    assert judged.share == 5 / 7
    both = [guessed(2, 2, name="ngram"), guessed(1, 0)]
    assert (held(both, "ngram").share, held(both, "draft").share) == (1.0, 0.0)
    assert held([]).share == 0.0


def test_costs_are_medians_by_rows() -> None:
    steps = [guessed(4, 1, 3.0, 1.2, 4), guessed(4, 1, 2.0, 0.4, 4), guessed(4, 1, 9.0, 0.8, 4), guessed(0, 0, 1.1)]
    known = costs(steps)
    assert known.draft_pass == pytest.approx(0.2)
    assert known.verify == pytest.approx({5: 1.8, 1: 1.1})


@pytest.mark.parametrize(("share", "length"), [(0.8, 4), (0.5, 1)])
def test_the_formula(share: float, length: int) -> None:
    """For equal chains it is Leviathan's: E / (g c + v)."""
    hits = round(share * 100)
    # Chains of one guess, so that the share that holds is exact; then counted as chains of ``length``.
    steps = [guessed(1, int(place < hits)) for place in range(100)]
    assert held(steps).share == share
    longer = [step._replace(rows=1 + length, passes=length, depths=(("draft", length, 0),)) for step in steps]
    made = predicted(longer, Costs(0.1, {1 + length: 1.2}))
    assert made == pytest.approx(1.0 / (length * 0.1 + 1.2)), "nothing held"
    kept = [step._replace(depths=(("draft", length, length),)) for step in longer]
    assert predicted(kept, Costs(0.1, {1 + length: 1.2})) == pytest.approx((length + 1) / (length * 0.1 + 1.2))
    one = predicted(steps, Costs(0.1, {2: 1.2}))
    assert one == pytest.approx(expected_tokens(share, 1) / 1.2)


def test_the_formula_over_steps_that_do_not_all_guess() -> None:
    """Half of the steps guess two ahead and keep all: three tokens for 1.5 steps, and one for one."""
    steps = [guessed(2, 2, passes=2), guessed(0, 0)]
    assert predicted(steps, Costs(0.1, {3: 1.3, 1: 1.0})) == pytest.approx((3 + 1) / (1.5 + 1.0))
    assert predicted([guessed(0, 0)], Costs(0.0, {1: 1.0})) is None


def test_steps_of_an_answer_begin_with_its_prompt() -> None:
    """The first record is the last step of the answer before; costs are in the unit given, guessing by its step."""
    watch = Watch()
    proposer = NgramProposer()
    spent = iter([Work(0.2, 4, 7), Work(0.1, 1, 1)])
    proposer.take_work = lambda: next(spent)  # type: ignore[method-assign]
    watch.attach([proposer])
    steps = [
        record(1.0),
        record(2.0, prefill=9),
        record(3.0, guess=GuessRecord("draft", (1, 1), (1, 0), 2)),
        record(4.0),
    ]
    for step in steps:
        if step.time in (2.0, 3.0):
            assert proposer.take_work().passes
        watch.heard(step)
    assert watch.of(steps[1]) == Work(0.2, 4, 7)
    assert decoding(steps, watch, unit=0.25) == [
        Guessed(2.0, 0.4, 1, 3, 1, (("draft", 2, 1),)),
        Guessed(2.0, 0.0, 0, 1, 1, ()),
    ]


def test_quarters() -> None:
    assert spread([3.0]) == Spread(3.0, 3.0, 3.0, 1)
    assert spread([1.0, 5.0, 2.0, 3.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)


def specification(*missing: str) -> OptionSpec:
    capabilities: Any = {"model", "draft model", "several layers", "medusa heads", "eagle head", "mtp layers"}
    return next(spec for spec in state(defaults(), capabilities - set(missing)) if spec.key == "speculation")


def test_everyone_who_guesses_is_measured_and_the_rest_is_named() -> None:
    found, absent = ways(specification("eagle head"), ["ngram", "draft", "exit", "medusa"])
    assert [way.proposer for way in found] == ["ngram"] * 2 + ["draft"] * 2 + ["exit"] * 2 + ["medusa"] * 2 + ["auto"]
    assert [way.overrides.get("draft_length") for way in found] == [AHEAD, 0] * 4 + [None]
    assert [way.fixed for way in found] == [True, False] * 4 + [False]
    assert all(way.overrides["ngram_first"] is False for way in found[:-1])
    assert [line.split(":")[0] for line in absent] == ["EAGLE head"]


class ToyClient(EngineClient):
    """The toy engine in the thread of a client; ``asked`` is what each answer was told of speculation."""

    def __init__(self, watch: Watch) -> None:
        self.asked: list[str] = []
        self.changed = 0
        super().__init__(heard=watch.heard)
        self.engine.install(toy_model(limit=256))

    def answer(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        optimisations: Mapping[str, Value] | None = None,
        chat: str = "",
    ) -> Answer:
        answer = super().answer(prompt_ids, sampling, optimisations, chat)
        told = dict(optimisations or {})
        self.asked.append(f"{told['speculation']} {told.get('draft_length', '')}".strip())
        if self.changed and told["speculation"] == "draft":
            return answer._replace(ids=[*answer.ids[:-1], 1 - answer.ids[-1]])
        return answer


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ToyClient, Watch]]:
    sampling = Sampling(temperature=0.0, max_tokens=24, ignore_eos=True, seed=1)
    prompts = [Prompt([1, 2, 3, 4, 5, 6, 7 + number], sampling) for number in range(2)]
    short = Prompt([3, 4], msgspec.structs.replace(sampling, max_tokens=3))
    made = [
        Text("code", "code that goes on", prompts),
        Text("talk", "free talk", [prompts[0], short]),
        Text("none", "nothing said", [short]),
    ]
    monkeypatch.setattr(speculation, "texts", lambda model, tokens: made)
    watch = Watch()
    with ToyClient(watch) as client:
        yield client, watch


def test_plain_and_guessing_take_turns(toy: tuple[ToyClient, Watch]) -> None:
    client, watch = toy
    figures = measure_speculation(client, watch, rounds=2)
    assert [text.title for text in figures.texts] == ["code that goes on", "free talk"]
    assert [text.prompts for text in figures.texts] == [2, 1]
    assert "free talk: 1 of 2 prompts are answered in fewer than 6 tokens" in figures.absent
    assert "nothing said: 1 of 1 prompts are answered in fewer than 6 tokens" in figures.absent
    told = [way.overrides for way in ways(specification("several layers"), ["ngram", "draft"])[0]]
    names = [f"{each['speculation']} {each.get('draft_length', '')}".strip() for each in told]
    # Each prompt once to see whether it is answered; then the first text: a warm-up, and pairs that turn round.
    expected = ["off"] * 5
    for way in names:
        expected += [way, *(["off", way] * 2)]
    for way in names:
        expected += [way, "off"] * 2
    assert client.asked[: len(expected)] == expected


def test_rows_hold_what_was_measured(toy: tuple[ToyClient, Watch]) -> None:
    client, watch = toy
    figures = measure_speculation(client, watch, rounds=1)
    for text in figures.texts:
        rows = {row.title: row for row in text.rows}
        assert list(rows)[-1] == "automatic"
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
        assert rows[f"n-gram, {AHEAD} ahead"].draft_pass == 0, "it costs no pass"
        assert all(row.equal == row.answers and row.exact == row.exact_answers for row in text.rows)
        assert all(min(row.speed, row.plain, row.speedup.median) > 0 for row in text.rows)
    assert [row.batch for row in figures.overhead] == [1, 8]
    assert all(min(row.speed, row.plain) > 0 and row.ratio.pairs == 4 for row in figures.overhead)
    least = min(figures.texts, key=lambda text: max(text.rows[0].speedup.median, text.rows[2].speedup.median))
    assert {row.text for row in figures.overhead} == {least.title}
    assert figures.verify == [], "the toy has no layers to be timed by themselves"


def test_a_change_of_text_is_said_aloud(toy: tuple[ToyClient, Watch]) -> None:
    client, watch = toy
    client.changed = 1
    figures = measure_speculation(client, watch, rounds=1)
    text = figures.texts[0]
    assert [row.exact for row in text.rows] == [2, 2, 0, 0, 2]
    assert any("CHANGED" in line and "draft model, 4 ahead on free talk" in line for line in figures.conclusions)
    assert "DIFFERS in 2 of 2" in shown(figures)


def row(title: str, gain: float, low: float = 0.0, guessing: float = 1.0, **more: Any) -> WayRow:
    told: dict[str, Any] = {
        "proposer": "draft", "title": title, "speed": 1.0, "plain": 1.0, "speedup": Spread(gain, low or gain, gain, 4),
        "accepted": [0.5], "acceptance": 0.5, "tokens_per_step": 1.5, "guessing": guessing, "draft_pass": 0.25,
        "passes": 4.0, "verify_step": 1.5, "verify_rows": 5.0, "predicted": 0.6, "equal": 4, "answers": 4, "exact": 2,
        "exact_answers": 2,
    }  # fmt: skip
    return WayRow(**(told | more))


def whole(rows: list[WayRow], overhead: Sequence[OverheadRow] = ()) -> SpeculationFigures:
    text = TextFigures("talk", "free talk", 1, 9, rows)
    return SpeculationFigures("m", "d", "cpu", "float32", 1, 1.0, [text], [], list(overhead), [], [])


def shown(figures: SpeculationFigures) -> str:
    out = io.StringIO()
    show_speculation(figures, Console(file=out, width=200))
    return re.sub(r"\s+", " ", out.getvalue())


def test_sentences_come_from_the_figures() -> None:
    """A gain must be there in most pairs, and of somebody who guessed; a loss is told with its reason."""
    assert pays(row("a", 1.5))
    assert not pays(row("a", 1.5, low=0.9))
    assert not pays(row("a", 1.5, guessing=0.0))
    (said, equal) = conclusions(whole([row("n-gram", 1.5), row("draft model", 0.6)]))
    assert said == (
        "Free talk: on this CPU it pays with n-gram (1.50). It does not pay with draft model (0.60: "
        "a step that guesses costs 2.50 plain ones, and 1.50 tokens come of a step)."
    )
    assert equal.startswith("All 4 answers")
    assert "no way to guess pays" in conclusions(whole([row("draft model", 0.6)]))[0]
    near = conclusions(whole([row("draft model", 0.6, equal=3)]))
    assert near[-1] == "Of the 4 timed ones 1 left the plain text at a near-tie of two tokens."


@pytest.mark.parametrize(
    ("ratio", "words"), [(0.98, "2.0% of the plain speed, within"), (0.9, "10.0%"), (1.01, "nothing")]
)
def test_what_automatic_guessing_costs(ratio: float, words: str) -> None:
    spent = OverheadRow(8, "noise", 0.7, 98.0, 100.0, Spread(ratio, ratio, ratio, 4), 0.03)
    assert words in conclusions(whole([row("draft model", 0.6)], [spent]))[1]
    assert "beyond" in conclusions(whole([], [msgspec.structs.replace(spent, ratio=Spread(0.5, 0.5, 0.5, 1))]))[1]


def test_the_table_says_what_was_measured() -> None:
    out = shown(whole([row("draft model, 4 ahead", 0.6, low=0.5), row("automatic", 1.0, guessing=0.0, accepted=[])]))
    for cell in ("0.60 (0.50-0.60)", "4 x 0.25, 1.50 (5)", "never guessed", "a plain step takes 1.00 ms", "same"):
        assert cell in out, cell


def test_without_transformers_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation_assisted.importlib.util, "find_spec", lambda name: None)
    checkpoint = Checkpoint.open(bundled_model().path)
    rows, absent = measure_assisted(checkpoint, "", [Text("talk", "free talk", [Prompt([1], Sampling())])], 1)
    assert rows == []
    assert absent == ["transformers' assisted generation and prompt lookup: the package transformers is not installed"]
    monkeypatch.undo()
    monkeypatch.setattr(speculation_assisted.psutil, "virtual_memory", lambda: type("", (), {"available": 1000}))
    assert (
        "do not fit into memory" in measure_assisted(checkpoint, "", [Text("", "", [Prompt([1], Sampling())])], 1)[1][0]
    )


def test_transformers_has_the_weights_of_the_packed_file() -> None:
    """Its logits are those of this engine's model in float32 with the weights unpacked."""
    checkpoint = Checkpoint.open(bundled_model().path)
    theirs = dequantised(checkpoint)
    ids = list(range(5, 69))
    ours = load_model(checkpoint, torch.device("cpu"), torch.float32, "16bit")
    rows = [SequenceRows(ids, 0, [1, 2, 3, 4], want_logits=len(ids))]
    logits = new_runner(ours, 5, torch.device("cpu")).forward(rows).logits
    with torch.inference_mode():
        assert torch.allclose(theirs(torch.tensor([ids])).logits[0], logits, atol=2e-3)


def test_the_report_of_the_bundled_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, with one prompt of each kind, down to transformers guessing with the same weights."""
    monkeypatch.setattr(speculation_texts, "_CODE", speculation_texts._CODE[:1])
    monkeypatch.setattr(speculation_texts, "_AGAIN", speculation_texts._AGAIN[:1])
    monkeypatch.setattr(speculation_texts, "_LINES", ())
    monkeypatch.setattr(speculation_texts, "_ABOUT_KVASIR", speculation_texts._ABOUT_KVASIR[:1])
    file = tmp_path / "figures.json"
    threads = torch.get_num_threads()
    report = run(switches=False, shapes=[], speculation=True, rounds=1, threads=threads, tokens=24, json_file=file)
    figures = report.speculation
    assert figures is not None
    assert [text.key for text in figures.texts] == ["code", "edit", "talk", "noise"]
    assert {"n-gram, 4 ahead", "draft model, 4 ahead", "automatic"} <= {row.title for row in figures.texts[0].rows}
    assert all(row.exact == row.exact_answers > 0 for text in figures.texts for row in text.rows)
    talk = {row.title: row for row in figures.texts[2].rows}
    assert talk["draft model, 4 ahead"].tokens_per_step > 3, "the draft knows these answers as well"
    assert {row.batch for row in figures.verify} == {1, 8}
    assert all((row.ratio == 1) == (row.rows == 1) for row in figures.verify)
    assert [(row.text, row.title) for row in figures.assisted] == [
        (text, f"transformers, {way}")
        for text in ("code that goes on", "a given text edited", "free talk")
        for way in ("assisted generation", "prompt lookup")
    ]
    assert all(row.equal == row.answers == 1 for row in figures.assisted)
    assert msgspec.json.decode(file.read_bytes(), type=Report).speculation == figures
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    for words in ("code that goes on: 1 prompts", "the model's forward by rows", "transformers, prompt lookup"):
        assert words in out


def test_another_model_is_asked_what_people_ask(tmp_path: Path) -> None:
    """Without a chat template too; its checking is timed by rows."""
    with EngineClient() as client:
        client.load(str(gptq_folder(TINY, tmp_path)))
        made = texts(client.model, 40)
        verify = measure_verify(client.model, 1, rows=(1, 3), batches=(2,))
    assert [text.key for text in made] == ["code", "edit", "talk", "noise"]
    assert [len(text.prompts) for text in made] == [3, 3, 4, 2]
    assert all(prompt.ids and prompt.sampling.max_tokens == 40 for text in made for prompt in text.prompts)
    assert [(row.batch, row.rows) for row in verify] == [(2, 1), (2, 3)]
    assert all(row.ms > 0 and row.ratio > 0 for row in verify)


def test_the_script_for_a_gpu_at_a_toy_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first layers agree as often as was asked, and guess; each way is held against plain decoding."""
    file = tmp_path / "figures.json"
    told = ["--dry-run", "--rates", "0.6", "0.9", "--batches", "2", "--lengths", "3", "--tokens", "40", "--rounds", "1"]
    figures = on_gpu.main([*told, "--json", str(file)])
    low, _, high, automatic = figures
    assert [figure.way for figure in (low, high)] == ["first layers as a draft, 3 ahead"] * 2
    assert automatic.way == "automatic"
    assert (low.found, high.found) == (pytest.approx(0.6, abs=0.02), pytest.approx(0.9, abs=0.02))
    assert low.factor > high.factor > 0
    assert low.holds < high.holds
    assert abs(high.holds - 0.9) < 0.12
    assert high.tokens_per_step > 2.5
    assert all(min(figure.tokens_per_second, figure.plain) > 0 for figure in figures)
    assert "SYNTHETIC" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert "synthetic" in written["pair"]
    assert len(written["figures"]) == 4


def test_guesses_that_were_reached_in_a_batch() -> None:
    """Of three chains, one of 2 that held whole, one of 3 that held whole, one of 3 that failed at its second."""
    assert on_gpu._whole((3, 3, 2), (3, 2, 1)) == 2
    assert on_gpu._whole((1,), (0,)) == 0

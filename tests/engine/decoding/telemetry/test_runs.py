"""What is kept of steps, and what is expected from that."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.decoding.telemetry import runs
from engine.decoding.telemetry.records import DraftRecord, StepRecord
from engine.decoding.telemetry.runs import MeasuredRate, Recorder, ServedModel
from tests.engine.decoding.telemetry.steps import step as record

MODEL = ServedModel("a CPU", "GGUF Q4_K", "/models/a", 1 << 30, 2e9)
OTHER = MODEL._replace(model="/models/b", read=(1 << 30) + 1000)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))


def step(duration: float, **changes: object) -> StepRecord:
    return record(0.0, **{"duration": duration, "waiting": 0, "running": 1} | changes)


def test_plain_steps_are_kept_as_a_share_of_the_bandwidth() -> None:
    recorder = Recorder(MODEL, 100_000.0)
    for duration in [0.02] * 20 + [5.0]:  # one hiccup
        recorder.add(step(duration))
    recorder.add(step(0.001, running=2, decode_rows=2))
    (found,) = recorder.take()
    assert (found.what, found.model, found.order) == ("decode", "/models/a", 30)
    assert found.value == pytest.approx(0.5)
    assert recorder.take() == []


def test_few_steps_wait_for_more() -> None:
    recorder = Recorder(MODEL, 100_000.0)
    for _ in range(10):
        recorder.add(step(0.02))
    assert recorder.take() == []
    for _ in range(10):
        recorder.add(step(0.02))
    assert len(recorder.take()) == 1


def test_prompts_and_drafts() -> None:
    recorder = Recorder(MODEL, 100_000.0)
    recorder.add(step(4.0, decode_rows=0, prefill_rows=100, generated=0))
    draft = DraftRecord("ngram", (1,), (1,), 2, draft_tokens=2)
    for _ in range(16):
        recorder.add(step(0.1, generated=3, verify_rows=2, drafts=(draft,)))
    prompt, drafted = recorder.take()
    assert prompt.value == pytest.approx(4.0 / 100 / 2e9)
    assert (drafted.proposer, drafted.value, drafted.rate) == ("ngram", 3.0, pytest.approx(30.0))
    runs.add([prompt, drafted])
    assert runs.best_draft(MODEL, runs.read()) == drafted
    assert runs.best_draft(OTHER, runs.read()) is None


def run(value: float, model: ServedModel = MODEL, trial: bool = False) -> MeasuredRate:
    return MeasuredRate("decode", model.device, model.format, model.order, model.model, value, trial=trial)


def test_own_runs_come_before_others_and_those_before_trials() -> None:
    known = [run(0.9, trial=True)]
    assert runs.expected("decode", MODEL, known) == (0.9, "/models/a", True)
    known.append(run(0.4, OTHER))
    assert runs.expected("decode", MODEL, known) == (0.4, "/models/b", False)
    known += [run(0.5), run(0.7), run(0.6)]
    assert runs.expected("decode", MODEL, known) == (0.6, "/models/a", False)
    assert runs.expected("prefill", MODEL, known) is None
    assert runs.expected("decode", MODEL._replace(device="another"), known) is None
    assert runs.expected("decode", MODEL._replace(read=1 << 33), known) is None


def test_the_newest_are_kept_and_a_damaged_file_is_none() -> None:
    runs.add([run(number) for number in range(1, 20)])
    assert [each.value for each in runs.read()] == [15, 16, 17, 18, 19]
    runs.add([run(float("nan")), run(20)])
    assert [each.value for each in runs.read()] == [16, 17, 18, 19, 20]
    runs.add([run(1, MODEL._replace(model=str(number))) for number in range(2 * runs.MOST)])
    assert len(runs.read()) == runs.MOST
    runs.file().write_text("[{")
    assert runs.read() == []
    runs.add([run(1)])
    assert len(runs.read()) == 1


def test_several_may_add_runs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = runs.read

    def slowly() -> list[MeasuredRate]:
        found = read()
        time.sleep(0.05)
        return found

    monkeypatch.setattr(runs, "read", slowly)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: runs.add([run(1, MODEL._replace(model=name))]), "abcd"))
    assert {each.model for each in read()} == set("abcd")
    assert not list(tmp_path.rglob("*.new"))


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "file"))
    runs.add([run(1)])
    assert runs.read() == []

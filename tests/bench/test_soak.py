"""The soak: what it finds in an engine that loses, keeps or grows, and that ours does none of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.loading.model import LoadModel
from engine.loop.events import Event
from engine.protocol import Error, Finished, LoadOptions
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from tests.bench.__main__ import app
from tests.bench.soak import Soak
from tests.bench.soak_figures import SoakFigures, SoakSample, slope

TINY = Shape("tiny", layers=2, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=504, context=512)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return gptq_folder(TINY, tmp_path)


def figures(rss: Callable[[int], float] = lambda second: 300e6, **changes: object) -> SoakFigures:
    fields: dict = {"descriptors": 9, "in_use": 0, "cached": 5, "running": 0, "queued": 0}
    counts = {"asked": 10, "stop": 6, "cancelled": 3, "refused": 1}
    samples = [SoakSample(seconds=float(s), rss=int(rss(s)), fresh=s % 5 == 0, **fields) for s in range(120)]
    return SoakFigures(**{"model": "m", "seconds": 120.0, "samples": samples, "counts": counts, "wrong": [], **changes})


def test_what_grows_or_is_lost_is_told_apart_from_what_wobbles() -> None:
    assert figures().passed
    assert figures(lambda s: 300e6 + 8e6 * (s * 7919 % 13 - 6)).passed
    assert figures(lambda s: 300e6 + 5e6 * min(s, 40)).passed, "what fills at first does not count"
    assert figures(lambda s: 300e6 + 1e6 * s * (s % 5 > 0)).passed, "nor what fills between two loads"
    growing = figures(lambda s: 300e6 + 1e6 * s + 8e6 * (s * 7919 % 13 - 6))
    assert growing.grows.startswith("Memory grows: 1")
    assert not growing.passed
    assert figures(counts={"asked": 10, "stop": 8}).lost == 2
    assert not figures(counts={"asked": 10, "stop": 8}).passed
    assert not figures(wrong=["The page ledger does not add up."]).passed
    leaking = [SoakSample(float(s), 300, 9 + s // 10, 0, 0, 0, 0) for s in range(120)]
    assert figures(samples=leaking).grows == "Descriptors grow: from 13 to 20."


def test_the_slope_of_a_line_is_its_slope() -> None:
    found = slope([float(x) for x in range(48)], [3.0 * x for x in range(48)])
    assert (found.value, found.error) == pytest.approx((3.0, 0.0))
    assert slope([0.0, 1.0], [1.0, 2.0]).error == float("inf")


@pytest.mark.slow
def test_the_engine_is_used_at_random_and_nothing_is_lost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Soak(seed=3) as soak:
        soak.load(LoadModel(str(folder), "", LoadOptions(device="cpu", dtype="float32", memory=200e6)))
        found = soak.run(8.0)
    for done in ("requests", "cancels", "branches", "switches", "KV kinds", "chats deleted", "loads"):
        assert found.counts[done], done
    assert any(sample.fresh for sample in found.samples)
    assert found.counts["cancelled"]
    assert (found.lost, found.wrong) == (0, [])
    assert found.samples[-1].in_use == 0
    assert any(sample.in_use or sample.cached for sample in found.samples)
    assert found.samples[-1].rss < found.warm[0].rss + 64e6
    assert "answers asked for" in capsys.readouterr().err


@pytest.mark.slow
def test_a_lost_end_an_end_too_many_and_a_failure_are_found(folder: Path) -> None:
    """The events of a real engine, with some of them taken away, doubled or put in."""
    with Soak() as soak:
        soak.load(LoadModel(str(folder), "", LoadOptions(device="cpu", dtype="float32", memory=200e6)))
        hear = soak._take
        ends = 0

        def take(event: Event) -> None:
            nonlocal ends
            ends += isinstance(event, Finished)
            hear(event)
            if isinstance(event, Finished) and ends == 1:
                hear(event)
                hear(Error(code="internal", message="The page ledger does not add up."))

        soak._take = take  # type: ignore[method-assign]
        found = soak.run(3.0)
    assert "The page ledger does not add up." in found.wrong
    assert any("was not running" in sentence for sentence in found.wrong)
    assert not found.passed


def test_the_table_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    figures().show()
    text = capsys.readouterr().out
    assert "m: random use for 120 s" in text
    assert "Of 10 answers: 6 stop, 3 cancelled, 1 refused; 0 lost." in text
    assert "Memory with an empty cache, after the first third: +0.00 ± 0.00 MB a minute. Flat." in text
    figures(samples=figures().samples[:41]).show()
    assert "too few loads to tell" in capsys.readouterr().out


@pytest.mark.parametrize(("told", "seconds"), [([], 1800.0), (["90"], 90.0)])
def test_the_command_takes_seconds_or_half_an_hour_and_its_status_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, told: list[str], seconds: float
) -> None:
    asked: list[float] = []

    def run(soak: Soak, told: float) -> SoakFigures:
        asked.append(told)
        return figures(counts={"asked": 10, "stop": 8}) if told == 90.0 else figures()

    monkeypatch.setattr(Soak, "load", lambda soak, load: None)
    monkeypatch.setattr(Soak, "run", run)
    result = CliRunner().invoke(app, ["soak", *told])
    assert asked == [seconds], result.output
    assert result.exit_code == (1 if seconds == 90.0 else 0)

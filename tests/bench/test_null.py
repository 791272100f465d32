"""`python -m tests.bench null`: the window's comparison of a setting with itself, and what is said of many."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from engine.library.paths import bundled_model
from engine.protocol import Compared, Effect, Metric
from tests.bench.__main__ import app
from tests.bench.null import CASES, NullFigures
from tests.bench.report import AllFigures


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(bundled_model().path, "model.safetensors").is_file(), reason="the bundled model is not built yet"
)
def test_settings_compared_with_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.services.answers.compare.MOST_SECONDS", -1.0)
    file = tmp_path / "figures.json"
    done = CliRunner().invoke(app, ["null", "3", "--threads", "1", "--json", str(file)])
    report = msgspec.json.decode(file.read_bytes(), type=AllFigures)
    assert report.null is not None
    assert [(one.key, *one.values) for one in report.null.tries] == [(key, value, value) for key, value in CASES[:3]]
    for one in report.null.tries:
        assert [run.value for run in one.runs] == one.values
        assert one.same
        assert one.effects[0].pairs == 1
    reuse = report.null.tries[1]
    assert all(run.cached_tokens for run in reuse.runs), "the prompt is in the cache, as the next message finds it"
    assert "3 of 3 comparisons of a setting with itself" in done.output


def test_a_verdict_on_a_setting_itself_is_counted() -> None:
    metric = Metric(figure="tokens_per_second", title="tokens/s")

    def one(*verdicts: str) -> Compared:
        effects = [
            Effect(metric=metric, before=1, after=1, ratio=1, low=1, high=1, pairs=8, verdict=v) for v in verdicts
        ]  # type: ignore[arg-type]
        return Compared(id="", key="k", values=[], runs=[], same=True, before=1, after=1, effects=effects)

    found = NullFigures([one("none", "none"), one("none", "worse"), one("better", "none")])
    assert found.conclusion.startswith("2 of 3 comparisons")
    assert "1 in any figure" in found.conclusion

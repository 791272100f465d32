"""``kvasir bench --scheduling``: each policy live and simulated on the same trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.library.paths import bundled_model
from engine.services.experiments.bench import BenchOptions, loaded
from engine.services.experiments.measures import scheduling
from engine.services.experiments.measures.scheduling import BATCH, measure_scheduling


@pytest.mark.slow
def test_policies_are_measured_live_and_simulated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "CHATS", 3)
    monkeypatch.setattr(scheduling, "APART", 2.0)
    with loaded(BenchOptions(model=Path(bundled_model().path)).load("")) as client:
        before = {key: spec.value for key, spec in client.state().items()}
        found = measure_scheduling(client, requests=6)
        assert {key: spec.value for key, spec in client.state().items()} == before
    assert [row.name for row in found.policies] == ["first_come", "classes", "mlfq", "shortest", "static"]
    for row in found.policies:
        assert row.live.requests == row.simulated.requests == 6
        assert row.live.mean > 0.0
    assert found.batch == BATCH
    idle, first_come, classes = found.floods
    assert idle.flood == 0
    assert classes.flood == first_come.flood > BATCH
    assert classes.first_p99 < first_come.first_median, "they wait for none of the batch requests before them"
    found.show()
    told = capsys.readouterr().out
    assert "skip-join MLFQ" in told
    assert "service classes" in told

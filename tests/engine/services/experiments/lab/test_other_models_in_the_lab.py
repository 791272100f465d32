"""What the experiments on sharing and guessing show with other small models, or why they cannot."""

from __future__ import annotations

import pytest

from engine.services.experiments import laboratory
from engine.services.experiments.experiment import Lab, LabError
from engine.services.experiments.lab import BY_NAME, batching, chunked, mlfq
from engine.services.experiments.workloads import drafting
from tests.engine.services.experiments.lab.conftest import loaded


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "LONGEST", 10)
    monkeypatch.setattr(batching, "SHORTEST", 5)
    monkeypatch.setattr(chunked, "SHORTEST", 40)
    monkeypatch.setattr(mlfq, "SHORT", 4)
    monkeypatch.setattr(mlfq, "SIMULATED", 10)
    monkeypatch.setattr(drafting, "SHORTEST", 6)
    monkeypatch.setitem(drafting.TEXTS, "edit", ("an edit", 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "refused"),
    [("kvasir-hybrid", {}), ("kvasir-seeing", {"heads": "This model has no EAGLE head: "})],
)
def test_other_models_show_it_or_say_why_not(model: str, refused: dict[str, str]) -> None:
    for client in loaded(model):
        state = client.state()
        for name in ("batching", "chunked", "mlfq", "speculation", "heads"):
            refusal = BY_NAME[name].refuses(client.model, state)
            if name in refused:
                assert refusal is not None
                assert refusal.why.startswith(refused[name])
                with pytest.raises(LabError, match="The bundled model can show it"):
                    laboratory.run(Lab(client), BY_NAME[name], print)
            else:
                assert refusal is None
                result = laboratory.run(Lab(client, pairs=1, budget=0.1), BY_NAME[name], print)
                assert result.headline
                assert result.text is not None

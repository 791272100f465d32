"""A model family in one file: Llama whose layers come in the other order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.compute.models import registry
from engine.compute.models.decoder import Decoder
from engine.compute.models.registry import Family, family
from tests.extending.busy_engine import Served, check, write_model


class Backwards(Decoder):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.layers = self.layers[::-1]


@pytest.mark.slow
def test_a_model_family(model: Path, tmp_path: Path) -> None:
    made = SimpleNamespace(Model=Backwards, read_config=family("LlamaForCausalLM").read_config)
    registry.OTHERS["BackwardsForCausalLM"] = cast(Family, made)
    served = check(write_model(tmp_path / "backwards", "BackwardsForCausalLM"), {})
    plain = Served(model, {})
    plain.ask(1, {})
    plain.run()
    assert plain.text(1) != served.text(1), "it is another model"

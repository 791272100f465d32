"""The tiny model that finds things in long texts, which comes with the program: all of them, at every depth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.library.paths import bundled_folder
from engine.protocol import LoadOptions
from engine.services.client import EngineClient
from engine.services.experiments.experiment import Lab
from engine.services.experiments.workloads import finding
from engine.services.experiments.workloads.needle import CODE


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with EngineClient() as client:
        client.load(str(bundled_folder() / finding.MODEL), "", LoadOptions(device="cpu"))
        yield Lab(client)


@pytest.mark.parametrize(
    "length", [512, 2048, pytest.param(4096, marks=pytest.mark.long), pytest.param(8192, marks=pytest.mark.long)]
)
def test_it_finds_what_was_hidden(lab: Lab, length: int) -> None:
    text = finding.text_for(lab.model, length, f"never trained on {length}")
    assert finding.found(text, finding.ask_for_all(lab, text, CODE)) == 100


def test_what_is_not_there_is_not_found(lab: Lab) -> None:
    """The numbers come from the text: asked about another one with the same names, it says other numbers."""
    one, other = (finding.text_for(lab.model, 512, seed) for seed in ("one", "other"))
    answers = finding.ask_for_all(lab, one._replace(hidden=other.hidden), CODE)
    assert finding.found(other, answers) == 0

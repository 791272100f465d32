"""A proposer in one folder: its record is all that catalogue, panel, window, bench and help are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import proposers
from app.panel.words import explanation
from engine import catalogue
from engine.decoding.speculation.technique import drafting
from engine.protocol import keys
from engine.services.experiments.measures.switches import drafters
from tests.extending.again.technique import TECHNIQUE
from tests.extending.busy_engine import check


def test_a_technique_is_known_everywhere_by_its_record() -> None:
    catalogue.register(TECHNIQUE)
    specs = {spec.key: spec for spec in catalogue.state(catalogue.defaults(), {"model"})}
    speculation = specs[keys.SPECULATION]
    assert (speculation.choices[-1], speculation.choice_titles[-1]) == ("again", "Last token again")
    assert speculation.reference.endswith(TECHNIQUE.paper)
    assert {key for key, spec in specs.items() if "again" in spec.of_values} == {*TECHNIQUE.uses}
    assert "MTP layers and an echo draft" in explanation(specs[keys.TREE_NODES])
    assert catalogue.conflict({keys.KV_CACHE: False, keys.SPECULATION: "again"})
    assert drafters()[keys.DRAFT_LENGTH] == ["draft", "assistant", "ngram", "again"]
    before = [*proposers._KNOWN.values()]
    proposers.learn(each.style for each in drafting())
    shown = proposers.proposer("again")
    proposers.learn(before)
    assert (shown.name, shown.by, shown.color, shown.share) == ("echo", "as an echo", "teal", 0.5)
    with pytest.raises(ValueError, match="again is registered already"):
        catalogue.register(TECHNIQUE)


@pytest.mark.slow
def test_a_proposer(model: Path) -> None:
    catalogue.register(TECHNIQUE)
    served = check(model, {}, {"ngram_first": False}, speculation="again")
    assert "again" in served.shown("speculation")

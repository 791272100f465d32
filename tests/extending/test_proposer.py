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
from tests.extending.bigram.technique import TECHNIQUE
from tests.extending.busy_engine import check


def test_a_technique_is_known_everywhere_by_its_record() -> None:
    catalogue.register(TECHNIQUE)
    specs = {spec.key: spec for spec in catalogue.state(catalogue.defaults(), {"model"})}
    speculation = specs[keys.SPECULATION]
    assert [*speculation.titles.items()][-1] == ("bigram", "Last followers")
    assert speculation.reference.endswith(TECHNIQUE.paper)
    assert {key for key, spec in specs.items() if "bigram" in spec.of_values} == {*TECHNIQUE.uses}
    assert "MTP layers and a table of followers draft" in explanation(specs[keys.TREE_NODES])
    assert catalogue.conflict({keys.KV_CACHE: False, keys.SPECULATION: "bigram"})
    assert drafters()[keys.DRAFT_LENGTH] == ["draft", "assistant", "ngram", "bigram"]
    before = [*proposers._KNOWN.values()]
    proposers.learn(each.style for each in drafting())
    shown = proposers.proposer("bigram")
    proposers.learn(before)
    assert (shown.name, shown.by, shown.color, shown.share) == ("bigrams", "from what followed each token", "teal", 0.5)
    with pytest.raises(ValueError, match="bigram is registered already"):
        catalogue.register(TECHNIQUE)


@pytest.mark.slow
def test_a_proposer(model: Path) -> None:
    catalogue.register(TECHNIQUE)
    served = check(model, {}, {"ngram_first": False}, speculation="bigram")
    assert "bigram" in served.shown("speculation")

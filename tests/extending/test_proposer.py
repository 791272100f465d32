"""A proposer in one file: the last token again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine import catalogue
from engine.catalogue import Choice
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, Proposer
from engine.loading import drafters
from tests.extending.busy_engine import check


class Again(Proposer):
    name = "again"

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        return [
            DraftTree((ask.request.tokens[-1],) * min(ask.budget, ask.depth), proposer=self.name)
            if ask.budget
            else NO_DRAFT
            for ask in asks
        ]


@pytest.mark.slow
def test_a_proposer(model: Path) -> None:
    drafters.ALONE.append(lambda target: Again())
    catalogue.offer("speculation", Choice("again", "Last token again"))
    served = check(model, {}, {"ngram_first": False}, speculation="again")
    assert "again" in served.shown("speculation")

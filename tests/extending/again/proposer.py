"""The last token again."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, Proposer


class Again(Proposer):
    name = "again"

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        return [
            DraftTree((ask.request.tokens[-1],) * min(ask.budget, ask.depth), proposer=self.name)
            if ask.budget
            else NO_DRAFT
            for ask in asks
        ]

"""One sequence over a packed cache, cut in any way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.stores.kinds import KVKind
from engine.cache.stores.recent import recent_span
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from tests.kit.models import CONFIG, RandomWeights

PAGES = 40
LONG = 170
WIDE = CONFIG.changed(head_dim=32, windows=(None, 100))


class Sequence1:
    """One sequence in a runner, its recent pages held and freed as `recent_span` says; freed ones are spoilt."""

    def __init__(self, kind: KVKind, invariant: bool = True, padded: bool = False, table: Sequence[int] = ()) -> None:
        numerics = Numerics(invariant)
        store = new_store(WIDE, PAGES, torch.float32, kind=kind, recent_pages=30)
        policy = powers_of_two if padded else None
        self.runner = Runner(Llama(WIDE, RandomWeights(numerics)), store, AttentionDispatcher(numerics), policy=policy)
        self.kind, self.store = kind, store
        self.pages = list(table or range(1, 20))
        self.recent: list[int] = []
        self.free = list(range(1, 30))

    def rows(self, ids: Sequence[int], start: int, parents: Sequence[int] | None = None) -> SequenceRows:
        if not self.kind.residual:
            return SequenceRows(ids, start, self.pages, len(ids), parents)
        first, stop = recent_span(start, len(ids), self.kind.residual)
        for at, page in enumerate(self.recent[:first]):
            if page:
                self.recent[at] = 0
                self.free.append(page)
                self.spoil(page)
        while len(self.recent) < stop:
            self.recent.append(self.free.pop(0))
        return SequenceRows(ids, start, self.pages, len(ids), parents, (self.recent,))

    def spoil(self, page: int) -> None:
        assert self.store.recent is not None
        for layer in range(WIDE.num_layers):
            kv = self.store.recent.view(layer)
            kv.k[page * 16 : page * 16 + 16] = torch.nan
            kv.v[page * 16 : page * 16 + 16] = torch.nan

    def forward(self, ids: Sequence[int], start: int, parents: Sequence[int] | None = None) -> Tensor:
        return self.runner.forward([self.rows(ids, start, parents)]).logits


def in_chunks(sequence: Sequence1, ids: Sequence[int], size: int) -> Tensor:
    chunks = range(0, LONG, size)
    return torch.cat([sequence.forward(ids[start : start + size], start) for start in chunks])

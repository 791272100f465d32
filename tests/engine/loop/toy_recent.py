"""A toy model over KIVI's two pools: what it reads is packed in one and recent in the other, by a row's index alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from engine.cache.pool import PAGE_SIZE, slots_of
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.recent import packed_until, to_pack
from engine.compute.batch import ForwardOutput, SequenceRows
from tests.engine.loop.toy_engine import VOCABULARY, ToyModel, ToyRunner, ToyStore, toy_logits, toy_model

PACKED = 1000
"""Added to a token that is packed, so that nobody takes it for a recent one."""


class ToyRecentRunner(ToyRunner):
    """Writes rows to recent pages and packs whole groups of them, as `KiviStore` does."""

    def __init__(self, pages: int, recent_pages: int, residual: int) -> None:
        super().__init__(pages)
        self.recent = np.full(recent_pages * PAGE_SIZE, -1, dtype=np.int64)
        self.residual = residual

    def forward(self, rows: Sequence[SequenceRows]) -> ForwardOutput:
        self.before_forward()
        self.calls += 1
        for row in rows:  # all rows are written before any is read
            self._write(row)
        logits = [
            toy_logits(self._text(row, index), self.seed, self.blur)
            for row in rows
            for index in range(row.start + len(row.tokens) - row.want_logits, row.start + len(row.tokens))
        ]
        stacked = np.stack(logits) if logits else np.zeros((0, VOCABULARY), dtype=np.float32)
        return ForwardOutput(torch.from_numpy(stacked), {})

    def _write(self, row: SequenceRows) -> None:
        self.rows += len(row.tokens)
        (recent,) = row.more_pages
        stop = row.start + len(row.tokens)
        assert stop <= len(row.pages) * PAGE_SIZE, "rows without pages"
        assert stop <= len(recent) * PAGE_SIZE, "rows without recent pages"
        index = np.arange(row.start, stop)
        pages = np.array(recent, dtype=np.int64)[index // PAGE_SIZE]
        assert pages.all(), "page 0 belongs to nobody"
        self.recent[pages * PAGE_SIZE + index % PAGE_SIZE] = list(row.tokens)
        packing = to_pack(row.start, len(row.tokens), self.residual)
        if packing:
            main, source = (slots_of(table, packing) for table in (row.pages, recent))
            assert (source >= PAGE_SIZE).all(), "packed from nobody's page"
            self.arena[main] = self.recent[source] + PACKED

    def _text(self, row: SequenceRows, last: int) -> np.ndarray:
        until = packed_until(last, self.residual)
        main = np.array(row.pages, dtype=np.int64)
        recent = np.array(row.more_pages[0], dtype=np.int64)
        packed, rest = np.arange(until), np.arange(until, last + 1)
        assert recent[rest // PAGE_SIZE].all(), "a recent token has no page"
        body = self.arena[main[packed // PAGE_SIZE] * PAGE_SIZE + packed % PAGE_SIZE] - PACKED
        return np.concatenate([body, self.recent[recent[rest // PAGE_SIZE] * PAGE_SIZE + rest % PAGE_SIZE]])


class ToyRecentStore(ToyStore):
    """The packed arena of a runner, with the recent one beside it."""

    num_groups = 2

    def __init__(self, runner: ToyRecentRunner) -> None:
        super().__init__(runner)
        beside = ToyRunner(1)
        beside.arena = runner.recent
        self.recent, self.residual = ToyStore(beside), runner.residual


def toy_recent_model(pages: int = 64, recent_pages: int = 40, limit: int = 320, residual: int = 64) -> ToyModel:
    """Both counts include a page 0."""
    runner = ToyRecentRunner(pages, recent_pages, residual)
    model = toy_model(pages, limit, draft_blur=0.6, runner=runner)
    stores = (ToyRecentStore(runner), *model.stores[1:])
    kind = KVKind("kivi", 2, 2, residual)
    return dataclasses.replace(model, stores=stores, kind=kind, recent_pages=recent_pages)  # type: ignore[arg-type]

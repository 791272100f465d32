"""Rows over layers with a window whose slots come and go give what rows over whole texts give, captured or not."""

from __future__ import annotations

import random

import pytest
import torch

from engine.cache.pool import pages_for as count_pages
from engine.cache.slots import first_seen
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.windowed import WindowedStore
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner.runner import Runner
from tests.engine.compute.runner.graphs_support import CONTEXT, TREE, Capturing, Player, agree, graphs_of
from tests.kit.models import CONFIG, PAGES, RandomWeights, pages_for, tokens

WINDOW, SLOTS = 20, 24


class Chat:
    """A text on pages, and on slots for its window that others have had before."""

    def __init__(self, pages: list[int]) -> None:
        self.length, self.pages, self.table = 0, pages, list[int]()

    def rows(self, tokens: list[int], free: list[int], parents: tuple[int, ...] | None) -> SequenceRows:
        first = first_seen(self.length, WINDOW)
        free += [slot for slot in self.table[:first] if slot]
        self.table[:first] = [0] * min(first, len(self.table))
        stop = count_pages(self.length + len(tokens))
        self.table += [0] * (stop - len(self.table))
        for place in range(first, stop):
            self.table[place] = self.table[place] or free.pop()
        rows = SequenceRows(tokens, self.length, self.pages, len(tokens), parents, (self.table.copy(),))
        self.length += 1 if parents else len(tokens)
        return rows


@pytest.mark.parametrize("all_windows", [False, True], ids=["some", "all"])
@pytest.mark.parametrize("kind", ["16bit", "int8", "int4"])
@pytest.mark.parametrize("capturing", [True, False], ids=["captured", "by backends"])
def test_slots_that_come_and_go(kind: str, capturing: bool, all_windows: bool) -> None:
    rng = random.Random(kind)
    windows = tuple(WINDOW if all_windows or layer % 2 else None for layer in range(CONFIG.num_layers))
    config = CONFIG.changed(windows=windows)
    modes, player = Numerics(), Player()
    plain = new_store(config, PAGES, torch.float32, kind=KVKind(kind))
    store = new_store(config, PAGES, torch.float32, kind=KVKind(kind, windowed=True), window_pages=SLOTS)
    assert isinstance(store, WindowedStore)
    assert store.storage_size() < plain.storage_size()
    candidates = [Capturing()] if capturing else None
    whole, windowed = (
        Runner(
            Llama(config, RandomWeights(modes)),
            kv,
            AttentionDispatcher(modes, candidates),
            context=CONTEXT,
            recorder=recorder,
            switches=modes,
        )
        for kv, recorder in ((plain, None), (store, player if capturing else None))
    )
    tables = pages_for(96, 1)
    chats, free = [Chat(next(tables)) for _ in range(4)], list(range(1, SLOTS))
    rng.shuffle(free)
    for _ in range(50):
        form = rng.choice(("decode", "decode", "chain", "tree", "read"))
        rows = []
        for chat in rng.sample(chats, rng.randint(1, 4)):
            count = {"decode": 1, "chain": 3, "tree": 5, "read": rng.randint(1, 9)}[form]
            if chat.length + count < 96:
                parents = TREE if form == "tree" and chat.length else None
                rows.append(chat.rows(tokens(count, rng.randrange(1 << 30)), free, parents))
        if rows:
            agree(windowed.forward(rows), whole.forward([row._replace(more_pages=()) for row in rows]))
            while capturing and graphs_of(windowed).capture_one():
                pass
    assert max(chat.length for chat in chats) > 3 * WINDOW
    assert not capturing or player.replays > 5

"""Every family that sees pictures answers as transformers does, in chunks, from the prefix cache and with drafts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from seeing_models import FAMILIES, theirs, write_seeing
from test_pictures import CHATS, COUNT, Seeing

from engine.protocol import Unload


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "qwen3.5"])
def test_answers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = write_seeing(tmp_path, name)
    host = Seeing(tmp_path)
    assert host.engine.loaded is not None
    assert host.engine.loaded.card.pictures, host.engine.loaded.card.notices
    expected = [theirs(model, chat, host.tokens(chat).ids, COUNT, name)[0] for chat in CHATS.values()]
    assert len({tuple(answer) for answer in expected}) == len(CHATS)
    for budget, disturbed, method in ((512, None, "off"), (33, None, "ngram"), (60, random.Random(1), "ngram")):
        host.stepper.cache.tree.evict(1 << 30)
        for _ in range(2):
            ids = host.say(list(CHATS.values()), speculation=method)
            host.run(budget, disturbed)
            assert host.of(ids) == expected
        assert all(host.cached[id] for id in ids), "the second time all of them are known"
    host.engine.submit(Unload())
    host.engine.step()

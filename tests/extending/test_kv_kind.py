"""A kind of KV cache in one folder: 8 bits in blocks, which the fit, the page map and the panel know by its record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine import catalogue
from engine.cache.stores.kinds import KVKind
from engine.compute.models.arenas import new_store
from engine.loading.memory.estimate import kv_bytes_per_token
from tests.extending.blocks8.technique import TECHNIQUE
from tests.extending.busy_engine import check
from tests.kit.models import CONFIG


def test_the_plan_counts_the_bytes_of_its_arenas() -> None:
    catalogue.register(TECHNIQUE)
    kind = KVKind("q8_0")
    store = new_store(CONFIG, 4, torch.float32, kind=kind)
    assert store.bytes_per_token() == kv_bytes_per_token(CONFIG, torch.float32, kind)
    assert kind.title == "q8_0"


@pytest.mark.slow
def test_a_kv_kind(model: Path) -> None:
    catalogue.register(TECHNIQUE)
    served = check(model, {"kv_kind": "q8_0"})
    assert "q8_0" in served.shown("kv_kind")
    assert served.engine.cache_stats().kind == "q8_0"

"""A kind of KV cache in one file: keys and values rounded to float16, whatever the model computes in."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from engine import catalogue
from engine.cache.stores import kinds
from engine.cache.stores.packed import Placement
from engine.cache.stores.store import DenseKVStore
from engine.catalogue import Choice, Technique
from engine.compute.models import arenas
from tests.extending.busy_engine import check


class Rounded(DenseKVStore):
    written = 0

    def write(self, layer: int, k: Tensor, v: Tensor, to: Placement) -> None:
        Rounded.written += 1
        super().write(layer, k.half().to(k.dtype), v.half().to(v.dtype), to)


@pytest.mark.slow
def test_a_kv_kind(model: Path) -> None:
    kinds.BITS["rounded"] = 32
    arenas.STORES["rounded"] = lambda made: Rounded(*made.shape, made.dtype, made.device)
    catalogue.register(
        Technique(switch="kv_kind", choice=Choice("rounded", "Rounded to float16", exactness="approximate"))
    )
    served = check(model, {"kv_kind": "rounded"})
    assert "rounded" in served.shown("kv_kind")
    assert served.engine.cache_stats().kind == "rounded"
    assert Rounded.written

"""All that is said of "q8_0", and how its store is made."""

from __future__ import annotations

from engine.cache.stores.kinds import Arenas, KVTechnique
from engine.cache.stores.store import KVStore
from engine.catalogue import Choice


def _store(arenas: Arenas) -> KVStore:
    from tests.extending.blocks8.store import Q8Store

    return Q8Store(arenas)


def _scales(width: int) -> tuple[float, float]:
    bits = 16 * -(-width // 32) / width
    return bits, bits


TECHNIQUE = KVTechnique(
    choice=Choice("q8_0", "8-bit blocks", exactness="approximate", explains="8 bits, a scale for each 32 channels."),
    label="q8_0",
    bits=(8,),
    store=_store,
    scales=_scales,
)

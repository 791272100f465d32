"""Arenas hold what was written where it was written, and page numbers name the same tokens in every layer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import psutil
import pytest
import torch

from engine.cache.stores.paged import new_arena
from engine.cache.stores.store import DenseKVStore, LatentKVStore
from engine.cache.techniques.quest.store import QuestStore
from tests.contracts.kv_store import PAGES, KVStoreContract


def dense(v_head_dim: int | None = None) -> DenseKVStore:
    return DenseKVStore([(2, 4)] * 2, PAGES, torch.float32, v_head_dim=v_head_dim)


def quest() -> QuestStore:
    return QuestStore([(2, 4)] * 2, PAGES, torch.float32, bounded=[False, True])


def latents() -> LatentKVStore:
    return LatentKVStore(layers=3, pages=PAGES, rank=5, rope=2, dtype=torch.float32)


class TestPlain(KVStoreContract):
    cases: ClassVar = {"make": {"dense": dense, "narrow values": lambda: dense(3), "latent": latents, "quest": quest}}


def test_latents_are_keys_and_what_they_begin_with_are_values() -> None:
    store = latents()
    kv = store.view(1)
    assert (kv.kind, tuple(kv.k.shape), tuple(kv.v.shape)) == ("latent", (144, 1, 7), (144, 1, 5))
    kv.k[17, 0, 3] = 42.0
    assert kv.v[17, 0, 3] == 42.0


def test_latents_are_counted_once() -> None:
    store = LatentKVStore(27, 3, 512, 64, torch.bfloat16)  # DeepSeek-V2-Lite
    assert store.bytes_per_token() == 31_104
    assert store.storage_size() == 3 * 16 * 31_104


def test_arenas_take_memory_only_as_they_are_written() -> None:
    """An allocator that was given such pieces back hands them out again, and has to write zeros."""
    process = psutil.Process()
    before = process.memory_info().rss

    def grown() -> list[int]:
        """Bytes after each of some makings, in a thread that has no heap yet as the engine's."""
        seen = []
        for _ in range(4):
            arenas = [new_arena((4 << 20,), torch.uint8, torch.device("cpu")) for _ in range(12)]
            seen.append(process.memory_info().rss - before)
            assert not any(bool(arena.count_nonzero()) for arena in arenas)
            for arena in arenas:
                arena[:4096] = 1
            del arena, arenas
        return seen

    with ThreadPoolExecutor(1) as pool:
        assert max(pool.submit(grown).result()) < 16 << 20


def test_an_arena_of_nothing_and_one_of_too_much() -> None:
    assert new_arena((0, 2), torch.float16, torch.device("cpu")).shape == (0, 2)
    with pytest.raises(MemoryError, match="could not be mapped"):
        new_arena((1 << 56,), torch.uint8, torch.device("cpu"))

"""Arenas hold what was written where it was written, and page numbers name the same tokens in every layer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.stores.packed import Placement
from engine.cache.stores.paged import new_arena
from engine.cache.stores.store import DenseKVStore, LatentKVStore
from tests.kit.examples import examples


def filled(v_head_dim: int | None = None) -> DenseKVStore:
    store = DenseKVStore([(2, 4)] * 2, pages=6, dtype=torch.float32, device="cpu", v_head_dim=v_head_dim)
    torch.manual_seed(0)
    for layer in range(2):
        kv = store.view(layer)
        kv.k.normal_()
        kv.v.normal_()
    return store


@pytest.mark.parametrize("first_slot", [-1, 37])
def test_rows_are_written_to_their_slots_only(first_slot: int) -> None:
    store = filled()
    before = store.view(1).k.clone(), store.view(1).v.clone(), store.view(0).k.clone()
    slots = torch.arange(37, 42) if first_slot >= 0 else torch.tensor([90, 3, 40, 17, 41])
    k, v = torch.randn(5, 3, 4)[:, :2], torch.randn(5, 3, 4)[:, 1:]  # strided, as slices of a fused projection are
    store.write(1, k, v, Placement(slots[None], [first_slot]))
    kv = store.view(1)
    assert torch.equal(kv.k[slots], k)
    assert torch.equal(kv.v[slots], v)
    others = torch.ones(96, dtype=torch.bool)
    others[slots] = False
    assert torch.equal(kv.k[others], before[0][others])
    assert torch.equal(kv.v[others], before[1][others])
    assert torch.equal(store.view(0).k, before[2])


def test_moving_slots_reads_before_it_writes() -> None:
    store = filled(v_head_dim=3)
    before = [(store.view(layer).k.clone(), store.view(layer).v.clone()) for layer in range(2)]
    src, dst = torch.tensor([21, 22, 25]), torch.tensor([20, 21, 22])  # accepted nodes of a tree, compacted
    store.move_slots(src, dst)
    for layer, (k, v) in enumerate(before):
        assert torch.equal(store.view(layer).k[dst], k[src])
        assert torch.equal(store.view(layer).v[dst], v[src])


def test_a_page_is_copied_in_every_layer() -> None:
    store = filled()
    store.copy_page(2, 5)
    for layer in range(2):
        kv = store.view(layer)
        assert torch.equal(kv.k[80:96], kv.k[32:48])
        assert torch.equal(kv.v[80:96], kv.v[32:48])


def test_exported_pages_come_back_under_other_numbers() -> None:
    store, other = filled(v_head_dim=3), filled(v_head_dim=3)
    data = store.export_pages([4, 1])
    other.import_pages([2, 5], data)
    for layer in range(2):
        for a, b in ((4, 2), (1, 5)):
            source, target = slice(a * 16, a * 16 + 16), slice(b * 16, b * 16 + 16)
            assert torch.equal(other.view(layer).k[target], store.view(layer).k[source])
            assert torch.equal(other.view(layer).v[target], store.view(layer).v[source])


def test_importing_another_count_of_pages_is_refused() -> None:
    store = filled()
    with pytest.raises(ValueError, match="exported pages have the shape"):
        store.import_pages([1], store.export_pages([1, 2]))


def test_sizes_count_both_arenas_of_every_layer() -> None:
    store = DenseKVStore([(2, 8)] * 3, 5, torch.bfloat16, "cpu", v_head_dim=4)
    assert store.bytes_per_token() == 3 * 2 * (8 + 4) * 2
    assert store.storage_size() == 5 * 16 * store.bytes_per_token()


def latents() -> LatentKVStore:
    store = LatentKVStore(layers=3, pages=6, rank=5, rope=2, dtype=torch.float32)
    for layer in range(3):
        store.view(layer).k.normal_()
    return store


def test_latents_are_keys_and_what_they_begin_with_are_values() -> None:
    store = latents()
    kv = store.view(1)
    assert (kv.kind, tuple(kv.k.shape), tuple(kv.v.shape)) == ("latent", (96, 1, 7), (96, 1, 5))
    kv.k[17, 0, 3] = 42.0
    assert kv.v[17, 0, 3] == 42.0


@pytest.mark.parametrize("first_slot", [-1, 37])
def test_rows_of_latents_are_written_to_their_slots_only(first_slot: int) -> None:
    store = latents()
    before = [store.view(layer).k.clone() for layer in range(3)]
    slots = torch.arange(37, 42) if first_slot >= 0 else torch.tensor([90, 3, 40, 17, 41])
    k = torch.randn(5, 2, 7)[:, :1]
    store.write(1, k, torch.full((5, 1, 5), torch.nan), Placement(slots[None], [first_slot]))
    assert torch.equal(store.view(1).k[slots], k)
    before[1][slots] = k
    assert all(torch.equal(store.view(layer).k, before[layer]) for layer in range(3))


operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.permutations(range(96)), st.integers(1, 20)),
        st.tuples(st.just("move"), st.permutations(range(96)), st.integers(1, 20)),
        st.tuples(st.just("copy"), st.permutations(range(6)), st.just(0)),
        st.tuples(st.just("swap"), st.permutations(range(6)), st.integers(1, 3)),
    ),
    max_size=8,
)


@examples(40)
@given(operations)
def test_latents_do_as_keys_of_a_plain_store_do(steps: list[tuple[str, list[int], int]]) -> None:
    """Whatever is done to a store of latents and to one whose keys are those latents, they hold the same."""
    store, plain = latents(), DenseKVStore([(1, 7)] * 3, 6, torch.float32, v_head_dim=5)
    for layer in range(3):
        plain.view(layer).k.copy_(store.view(layer).k)
        plain.view(layer).v.copy_(store.view(layer).v)
    for number, (kind, order, count) in enumerate(steps):
        layer = number % 3
        if kind == "write":
            k, slots = torch.randn(count, 1, 7), torch.tensor(order[:count])
            for one in (store, plain):
                one.write(layer, k, k[..., :5], Placement(slots[None], [-1]))
        for one in (store, plain):
            if kind == "move":
                one.move_slots(torch.tensor(order[:count]), torch.tensor(order[-count:]))
            elif kind == "copy":
                one.copy_page(order[0], order[1])
            elif kind == "swap":
                one.import_pages(order[-count:], one.export_pages(order[:count]))
    for layer in range(3):
        assert torch.equal(store.view(layer).k, plain.view(layer).k)
        assert torch.equal(store.view(layer).v, plain.view(layer).v)


def test_latents_are_counted_once() -> None:
    store = LatentKVStore(27, 3, 512, 64, torch.bfloat16)  # DeepSeek-V2-Lite
    assert store.bytes_per_token() == 31_104
    assert store.storage_size() == 3 * 16 * 31_104
    assert store.export_pages([2, 1]).shape == (2, 27 * 16 * 576 * 2), "bytes of two pages"
    with pytest.raises(ValueError, match="exported pages have the shape"):
        store.import_pages([1], store.export_pages([1, 2]))


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

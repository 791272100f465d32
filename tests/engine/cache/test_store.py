"""Arenas hold what was written where it was written, and page numbers name the same tokens in every layer."""

from __future__ import annotations

import pytest
import torch

from engine.cache.store import DenseKVStore


def filled(v_head_dim: int | None = None) -> DenseKVStore:
    store = DenseKVStore(
        layers=2, pages=6, kv_heads=2, head_dim=4, dtype=torch.float32, device="cpu", v_head_dim=v_head_dim
    )
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
    store.write(1, slots, k, v, first_slot)
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
    store = DenseKVStore(3, 5, 2, 8, torch.bfloat16, "cpu", v_head_dim=4)
    assert store.bytes_per_token() == 3 * 2 * (8 + 4) * 2
    assert store.storage_size() == 5 * 16 * store.bytes_per_token()

"""Stores of keys and values: a row is where it was written, and pages are copied, moved and travel with all they hold.

A kind names its stores, each of PAGES pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import Placement
from engine.cache.stores.store import KVStore
from engine.compute.native.library import find
from tests.contracts.registration import Contract

PAGES = 9


def parts(store: KVStore, *layers: int) -> list[Tensor]:
    """What the layers hold, or all of them: a row for each slot or each page. Recent tokens are not among it."""
    found = []
    for layer in layers or range(store.layers):
        kv = store.view(layer)
        values = None if kv.kind == "latent" else kv.v  # latents are keys that the values lie in
        found += [part for part in (kv.k, values, kv.k_meta, kv.v_meta, kv.bounds) if part is not None]
    return found


def pages_of(store: KVStore) -> list[Tensor]:
    """All parts by page; bounds follow from keys and do not travel, so they are not among them."""
    bounds = {id(store.view(layer).bounds) for layer in range(store.layers)}
    return [part.view(PAGES, -1) for part in parts(store) if id(part) not in bounds]


def filled(store: KVStore) -> KVStore:
    """With something else in each part of each page."""
    generator = torch.Generator().manual_seed(0)
    for part in parts(store) + (parts(store.recent) if store.recent is not None else []):
        part.copy_(torch.randint(0, 100, part.shape, generator=generator))
    return store


def copies(found: list[Tensor]) -> list[Tensor]:
    return [part.clone() for part in found]


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


class KVStoreContract(Contract):
    cases: ClassVar[Mapping[str, Mapping[str, Callable[[], KVStore]]]]
    """``make``: by name. Each has two layers or more."""

    @pytest.mark.parametrize("first_slot", [-1, 37])
    def test_rows_are_written_to_their_slots_only(self, make: Callable[[], KVStore], first_slot: int) -> None:
        """The same rows are the same anywhere, also where native code copies them."""
        store, other = filled(make()), make()
        slots = torch.arange(37, 42) if first_slot >= 0 else torch.tensor([90, 3, 40, 17, 41])
        elsewhere = torch.arange(60, 65)
        kv = store.view(1)
        heads, width = kv.kv_heads, max(kv.k_dim, kv.v_dim)
        fused = torch.randn(5, 3 * heads, width)  # strided, as slices of a fused projection are
        k, v = fused[:, :heads, : kv.k_dim], fused[:, -heads:, : kv.v_dim]
        written, body = store.recent or store, copies(parts(store))
        before = copies(parts(written, 1))
        for one, at, first, native in ((store, slots, first_slot, None), (other, elsewhere, -1, find().library)):
            groups = range(one.num_groups - 1, -1, -1)  # rows go to the last; a packed one has other pages
            places = torch.stack([at + 16 * group for group in groups])
            firsts = [first + 16 * group if first >= 0 else -1 for group in groups]
            one.write(1, k, v, Placement(places, firsts), native)
        if written.view(1).kind in ("dense", "latent"):
            assert torch.equal(written.view(1).k[slots], k)
            assert written.view(1).kind == "latent" or torch.equal(written.view(1).v[slots], v)
        for was, mine, theirs in zip(before, parts(written, 1), parts(other.recent or other, 1), strict=True):
            if mine.shape[0] == PAGES * PAGE_SIZE:
                assert torch.equal(mine[slots], theirs[elsewhere])
                was[slots] = mine[slots]
                assert torch.equal(mine, was)
        if written is not store:
            assert same(parts(store), body), "what is packed waits for a whole group"
        assert same(parts(store, 0), body[: len(parts(store, 0))])

    def test_moving_slots_reads_before_it_writes(self, make: Callable[[], KVStore]) -> None:
        """Accepted nodes of a tree are moved together; of KIVI they are recent."""
        store = filled(make())
        source, target = torch.tensor([21, 22, 25]), torch.tensor([20, 21, 22])
        moved, body = store.recent or store, copies(parts(store))
        before = copies(parts(moved))
        store.move_slots(source, target)
        for was, now in zip(before, parts(moved), strict=True):
            if now.shape[0] == PAGES * PAGE_SIZE:
                was[target] = was[source]
                assert torch.equal(now, was)
        assert moved is store or same(parts(store), body)

    def test_a_page_is_copied_with_all_it_holds(self, make: Callable[[], KVStore]) -> None:
        store = filled(make())
        before = copies(parts(store))
        store.copy_page(8, 3)
        for part in before:
            each = part.view(PAGES, -1)
            each[3] = each[8]
        assert same(parts(store), before)

    def test_exported_pages_come_back_under_other_numbers(self, make: Callable[[], KVStore]) -> None:
        store, other = filled(make()), make()
        pages, others = [5, 2, 8, 1], [3, 4, 5, 6]
        before = copies(pages_of(other))
        data = store.export_pages(pages)
        assert (tuple(data.shape), data.dtype) == ((4, store.page_bytes), torch.uint8)
        other.import_pages(others, data)
        for was, source in zip(before, pages_of(store), strict=True):
            was[others] = source[pages]
        assert same(pages_of(other), before)
        with pytest.raises(ValueError, match="exported pages have the shape"):
            other.import_pages([1], store.export_pages([1, 2]))

    def test_sizes_count_every_part(self, make: Callable[[], KVStore]) -> None:
        store = make()
        held = sum(part.nbytes for part in parts(store))
        recent = sum(part.nbytes for part in parts(store.recent)) if store.recent is not None else 0
        assert store.storage_size() == held + recent
        assert store.bytes_per_token() * PAGES * PAGE_SIZE == held

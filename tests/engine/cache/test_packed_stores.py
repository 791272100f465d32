"""Stores of packed keys and values hold what was written where it was written, and copy, move and export it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from engine.cache.stores.codecs import pack_absmax, pack_along_channels, pack_along_tokens, unpack_pages
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import Flush, Placement
from engine.cache.stores.store import DenseKVStore, KVStore
from engine.cache.stores.windowed import WindowedStore
from engine.cache.techniques.kivi.store import KiviStore, RecentLayers
from engine.compute.models.arenas import new_store
from tests.contracts.kv_store import PAGES, KVStoreContract
from tests.kit.models import CONFIG

KINDS = [KVKind("int8"), KVKind("fp8"), KVKind("int4"), KVKind("kivi", 4, 2, 64)]
TOKENS = 96


def rows(seed: int, count: int = TOKENS, width: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    fused = torch.randn(count, 7, width, generator=generator)
    return fused[:, :2], fused[:, 4:6]  # strided, as slices of a fused projection are


def slots(pages: list[int]) -> Tensor:
    return torch.tensor([page * 16 + i for page in pages for i in range(16)])


def filled(kind: KVKind, pages: list[int], width: int = 64, cut: int = TOKENS) -> KVStore:
    """Two layers of 96 tokens on six pages, written in runs of `cut`; for KIVI the same pages hold the recent ones."""
    store = new_store(CONFIG.changed(head_dim=width), PAGES, torch.float32, kind=kind)
    places = slots(pages)
    for layer in range(2):
        k, v = rows(layer, width=width)
        for start in range(0, TOKENS, cut):
            part = slice(start, start + cut)
            flush = (
                Flush(places[part], torch.tensor(pages)[start // 16 : (start + cut) // 16]) if kind.residual else None
            )
            at = places[part].expand(store.num_groups, -1)
            store.write(layer, k[part], v[part], Placement(at, [-1] * store.num_groups, flush))
    return store


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
@pytest.mark.parametrize("width", [64, 80, 96, 128, 192, 256])
def test_what_was_written_is_read_at_its_pages(kind: KVKind, width: int) -> None:
    pages = [5, 2, 8, 1, 7, 4]
    for cut in (96, 32):
        store = filled(kind, pages, width, cut)
        for layer, (k, v) in enumerate((rows(0, width=width), rows(1, width=width))):
            found_k, found_v = unpack_pages(store.view(layer), torch.tensor(pages), torch.float32)
            assert found_k.shape == found_v.shape == (TOKENS, 2, width)
            assert (store.view(layer).k_dim, store.view(layer).v_dim, store.view(layer).kv_heads) == (width, width, 2)
            for found, x, coarse in ((found_k, k, kind.key_bits), (found_v, v, kind.value_bits)):
                # No group's range is wider than all numbers'; between floats of 3 bits after the first are eighths.
                steps = 16 if kind.name == "fp8" else 2**coarse - 2
                step = 2 * float(x.abs().max()) / steps
                assert float((found - x).abs().max()) <= step / 2 * 1.01
        untouched = store.view(0).k.view(PAGES, -1)[[3, 6]]
        assert not untouched.any()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_the_arenas_hold_the_codes_of_the_layout(kind: KVKind) -> None:
    pages = [5, 2, 8, 1, 7, 4]
    kv, (k, v) = filled(kind, pages).view(1), rows(1)
    at = slots(pages)
    assert kv.kind == kind.name
    if kind.name == "kivi":
        keys = pack_along_tokens(k, 4)
        assert torch.equal(kv.k_meta[torch.tensor(pages)], keys.meta)
        scale, low = keys.meta[2].float(), keys.meta[3].float()  # of the second group, on the pages 8 and 1
        assert torch.equal(kv.k_meta[8].float(), scale)
        assert torch.equal(kv.k_meta[1].float(), low)
        torch.testing.assert_close(low, k[32:64].amin(0), rtol=1e-3, atol=1e-6)
        values = pack_along_channels(v, 2)
    elif kind.name == "int4":
        keys, values = pack_along_channels(k, 4), pack_along_channels(v, 4)
        assert torch.equal(kv.k_meta[at], keys.meta)
        torch.testing.assert_close(keys.meta[7, 1, 1, 1].float(), k[7, 1, 32:].min(), rtol=1e-3, atol=1e-6)
    else:
        keys, values = pack_absmax(k, kind.name), pack_absmax(v, kind.name)
        assert torch.equal(kv.k_meta[at], keys.meta)
    assert torch.equal(kv.k[at], keys.codes)
    assert torch.equal(kv.v[at], values.codes)
    assert torch.equal(kv.v_meta[at], values.meta)


class TestPacked(KVStoreContract):
    cases: ClassVar = {
        "make": {
            kind.title: partial(new_store, CONFIG.changed(head_dim=64), PAGES, torch.float32, kind=kind)
            for kind in KINDS
        }
    }


def test_kivi_keeps_recent_tokens_apart() -> None:
    kind, pages = KVKind("kivi", 2, 2, 64), [5, 2, 8, 1, 7, 4]
    store = filled(kind, pages)
    assert store.recent is not None
    assert (store.num_groups, store.residual) == (2, 64)
    for layer in range(2):
        k, v = rows(layer)
        recent = store.view(layer).recent
        assert recent is not None
        assert recent.kind == "dense"
        assert torch.equal(recent.k[slots(pages)], k)
        assert torch.equal(recent.v[slots(pages)], v)


def test_packing_again_gives_the_same_bytes() -> None:
    kind, pages = KVKind("kivi", 2, 4, 64), [5, 2, 8, 1, 7, 4]
    store = filled(kind, pages)
    data = store.export_pages(pages)
    places = slots(pages)
    for layer in range(2):
        k, v = rows(layer)
        flush = Flush(places[32:64], torch.tensor(pages[2:4]))
        store.write(layer, k[95:], v[95:], Placement(places[95:].expand(2, -1), [-1, -1], flush))
    assert torch.equal(store.export_pages(pages), data)


def test_a_page_without_its_pair_reads_as_zeros() -> None:
    store = filled(KVKind("kivi", 2, 2, 64), [5, 2, 8, 1, 7, 4])
    k, v = unpack_pages(store.view(0), torch.tensor([5, 2, 8]), torch.float32)
    assert k.shape == v.shape == (48, 2, 64)
    assert k[:32].any()
    assert not k[32:].any()
    assert not v[32:].any()


def test_what_a_window_sees_is_packed_to_its_slots() -> None:
    """Recent tokens are those of all layers; groups that no window sees any more go nowhere."""
    kind, recent = KVKind("kivi", 2, 2, 64), DenseKVStore([(2, 8)] * 2, PAGES, torch.float32)
    whole, windowed = (
        KiviStore(kind, [(2, 8)], PAGES, PAGES, torch.float32, beside=RecentLayers(recent, [layer])) for layer in (0, 1)
    )
    store = WindowedStore(whole, windowed, PAGES, [None, 40])
    assert (store.num_groups, store.written_groups, store.group_of(0), store.group_of(1)) == (3, 1, 0, 2)
    pages = list(range(1, 9))
    flush = store.packs([0], [128], [[pages], [pages[::-1]], [[0, 0, *pages[2:]]]])
    assert flush is not None
    slots = torch.stack([torch.cat([torch.arange(16) + 16 * page for page in table]) for table in (pages, pages[::-1])])
    k, v = torch.randn(2, 128, 2, 8)
    for layer in (0, 1):
        store.write(layer, k, v, Placement(slots, [-1, -1], flush))
        assert torch.equal(recent.view(layer).k[slots[1]], k)
    assert torch.equal(windowed.view(0).k[48:80], whole.view(0).k[48:80])
    assert whole.view(0).k[16:48].any()
    assert not windowed.view(0).k[16:48].any()
    assert store.storage_size() == whole.storage_size() + windowed.storage_size() + recent.storage_size()

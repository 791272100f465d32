"""Gathered pages: those that native code unpacks against those that torch does."""

from __future__ import annotations

import pytest
import torch

from engine.cache.stores.codecs import unpack_pages
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.packed import Flush, PackedKV, Placement
from engine.cache.stores.packed_stores import TokenPackedStore
from engine.cache.techniques.kivi.store import KiviStore
from engine.compute.attention.backends.scratch import Scratch
from engine.compute.native.library import NativeLibrary
from tests.engine.compute.attention.packed_cases import KINDS

PAGES, HEADS = 12, 3
runs = pytest.mark.usefixtures("each_set")


def arenas(kind: tuple[str, int, int], width: int) -> PackedKV:
    slots = torch.arange(PAGES * 16)
    k, v = torch.randn(2, len(slots), HEADS, width, generator=torch.Generator().manual_seed(width)).bfloat16()
    if kind[0] != "kivi":
        store = TokenPackedStore(kind[0], [(HEADS, width)], PAGES)  # type: ignore[arg-type]
        store.write(0, k, v, Placement(slots[None], [0]))
        return store.view(0)
    kivi = KiviStore(KVKind("kivi", *kind[1:], 64), [(HEADS, width)], PAGES, PAGES, torch.bfloat16)
    kivi.write(0, k, v, Placement(slots.expand(2, -1), [0, 0], Flush(slots, torch.arange(PAGES))))
    return kivi.view(0)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pages each call of native code was given."""
    calls: list[int] = []
    unpack = NativeLibrary.unpack_pages

    def count(self: NativeLibrary, kv: PackedKV, pages: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        calls.append(len(pages))
        unpack(self, kv, pages, k, v)

    monkeypatch.setattr(NativeLibrary, "unpack_pages", count)
    return calls


@runs
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("width", [32, 96, 256])
@pytest.mark.parametrize("pages", [[0, 1, 2, 3], [6, 7, 2, 3, 10, 11, 0, 1], [4, 5, 8], [3]])
def test_native_code_and_torch_unpack_the_same(
    kind: tuple[str, int, int], width: int, pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kv, scratch = arenas(kind, width), Scratch()
    calls = counted(monkeypatch)
    dtype = torch.bfloat16 if len(pages) == 4 else torch.float32
    first, _ = scratch.gather(kv, torch.arange(PAGES), dtype)
    first.fill_(torch.nan)  # what an earlier call left there
    table = torch.tensor(pages)
    for read in (table, table.int(), torch.stack((table, table), 1)[:, 0]):
        found = scratch.gather(kv, read, dtype)
        for one, right in zip(found, unpack_pages(kv, table, torch.float32), strict=True):
            assert one.dtype == dtype
            assert one.shape == right.shape
            # At most one rounding to bfloat16; float32 sums are fused in one of the two and not in the other.
            rounding = 2**-8 if dtype == torch.bfloat16 else 2**-23
            assert bool(((one.float() - right).abs() <= right.abs() * rounding + 1e-6).all())
    assert calls == [PAGES] + 3 * [len(pages) // 2 * 2 if kind[0] == "kivi" else len(pages)]


@runs
def test_other_widths_and_dtypes_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, dtype in ((16, torch.bfloat16), (288, torch.bfloat16), (64, torch.float16)):
        kv, scratch, table = arenas(KINDS[1], width), Scratch(), torch.tensor([4, 1])
        calls = counted(monkeypatch)
        for one, right in zip(scratch.gather(kv, table, dtype), unpack_pages(kv, table, dtype), strict=True):
            assert torch.equal(one, right)
        assert calls == []


def test_numbers_are_converted_page_by_page() -> None:
    """More pages than are converted at once, in any order."""
    k, v = torch.randn(2, 40 * 16, HEADS, 32).bfloat16()
    pages, scratch = torch.randperm(40)[:37], Scratch()
    for arena, found in zip((k, v), scratch.gather(PackedKV(k, v), pages, torch.float32), strict=True):
        assert torch.equal(found, arena.view(40, -1)[pages].view(-1, HEADS, 32).float())

"""Pages of any arenas as bytes: the same by way of a device's staging buffer as directly."""

from __future__ import annotations

import pytest
import torch

from engine.cache.stores import transfer
from engine.cache.stores.transfer import PageTransfer, host_buffer

PAGES = 9


def arenas() -> list[torch.Tensor]:
    """Those of a store of packed keys and values: codes, scales for each slot, scales for each page."""
    generator = torch.Generator().manual_seed(2)

    def random(*shape: int) -> torch.Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    return [
        random(PAGES * 16, 2, 8),
        random(PAGES * 16, 2, 6).view(torch.int8),
        random(PAGES * 16, 2, 4).view(torch.float16),
        random(PAGES, 2, 12).view(torch.float16),
    ]


def test_a_page_is_its_part_of_every_arena() -> None:
    parts, pages = arenas(), [7, 2, 2, 5]
    move = PageTransfer(parts, PAGES)
    assert move.page_bytes == 16 * 2 * (8 + 6 + 4) + 2 * 12
    data = move.export(pages)
    for row, page in zip(data, pages, strict=True):
        one = torch.cat([part.view(PAGES, -1)[page].contiguous().view(torch.uint8) for part in parts])
        assert torch.equal(row, one)


@pytest.mark.parametrize("stage", [1, 700, 1 << 20])
@pytest.mark.parametrize("widths", [slice(None), slice(3, 4), slice(0, 1)])
def test_by_way_of_a_staging_buffer_pages_are_the_same(
    monkeypatch: pytest.MonkeyPatch, stage: int, widths: slice
) -> None:
    monkeypatch.setattr(transfer, "STAGING_BYTES", stage)
    direct, staged = PageTransfer(arenas()[widths], PAGES), PageTransfer(arenas()[widths], PAGES)
    staged._direct = False
    pages, others = [3, 8, 1, 4], [6, 2, 7, 5]
    data = direct.export(pages)
    out = host_buffer(4, direct.page_bytes, pinned=False)
    assert staged.export(pages, out) is out
    assert torch.equal(out, data)
    for move in (direct, staged):
        move.import_(others, data)
    everything = list(range(PAGES))
    assert torch.equal(direct.export(everything), staged.export(everything))
    assert torch.equal(direct.export(others), data)


def test_no_pages_are_no_work() -> None:
    move = PageTransfer(arenas(), PAGES)
    data = move.export([])
    assert data.shape == (0, move.page_bytes)
    move.import_([], data)


def test_other_data_is_refused() -> None:
    move = PageTransfer(arenas(), PAGES)
    before = move.export(list(range(PAGES)))
    for wrong in (before[:2], before[:1, :-1], before[:1].view(torch.int8)):
        with pytest.raises(ValueError, match="exported pages have the shape"):
            move.import_([1], wrong)
        with pytest.raises(ValueError, match="exported pages have the shape"):
            move.export([1], wrong)
    assert torch.equal(move.export(list(range(PAGES))), before)


def test_the_layout_tells_stores_apart() -> None:
    def layout(dtype: torch.dtype, *shapes: tuple[int, ...]) -> str:
        return PageTransfer([torch.zeros(shape, dtype=dtype) for shape in shapes], 2).layout

    assert layout(torch.bfloat16, (32, 2, 4), (32, 2, 4)) == "2 x bfloat16[16, 2, 4]"
    assert layout(torch.float16, (32, 2, 4), (32, 2, 4)) == "2 x float16[16, 2, 4]"
    assert layout(torch.float16, (32, 2, 4), (32, 1, 8)) == "1 x float16[16, 2, 4]; 1 x float16[16, 1, 8]"
